"""What decisions remember.

Read in this order:
    history.py     one value, which each decision reads and returns changed
    memory.py      the same in a WorkerPool's status
    demand.py      how many tokens a pool needs room for
    start_time.py  how long a replica takes to be ready, learned

Pure. What a look adds is in `observe.py`.
"""
