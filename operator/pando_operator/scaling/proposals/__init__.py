"""How many replicas each signal asks for.

Read in this order:
    sizing.py    from tokens to replicas, as every proposal does it
    pressure.py  KV pressure, and its growth
    waits.py     queues and waits: too small, but not by how much
    panic.py     a sudden rise
    idle.py      to zero, and back

Pure. The largest proposal wins: `decide.py`.
"""
