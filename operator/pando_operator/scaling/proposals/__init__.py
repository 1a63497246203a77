"""How many replicas each signal asks for.

Read in this order:
    sizing.py    converts tokens to replicas, for every proposal
    pressure.py  KV pressure, and its growth
    waits.py     queue waits and hot evictions: signals that a pool is too small
    panic.py     reacts to a sudden rise
    idle.py      scales to zero, and back

Pure. `decide.py` takes the largest proposal.
"""
