"""What decisions remember.

Read in this order:
    history.py     one value, which each decision reads and returns changed
    memory.py      stores it in a WorkerPool's status
    demand.py      how many KV tokens a pool needs room for
    pace.py        learns how fast replicas compute prompts and tokens
    start_time.py  learns how long a replica takes to become ready

Pure. `observe.py` adds observations.
"""
