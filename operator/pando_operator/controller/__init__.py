"""The control loop: reads the world, decides, plans, acts and tells; one task a pool.

Read in this order:
    manager.py      all pools
    pool_loop.py    the loop of one pool
    shared.py       what all loops have in common
    looking/        reads the cluster and Redis
    look.py         what one look found, and what is wanted
    conversions.py  small pure steps of a look
    verdicts.py     the four conditions of a pool's status
    acting/         carries out a plan
    telling/        status, Events, metrics, rows in Redis
    memory.py       what a loop remembers between two looks

How many replicas is decided in `scaling`; which pod leaves, in `lifecycle`.
"""
