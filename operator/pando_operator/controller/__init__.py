"""The control loop, one task a pool: observes, decides, plans, acts and reports.

Read in this order:
    manager.py      starts and ends the loops
    pool_loop.py    the loop of one pool
    shared.py       what all loops share
    observing/      reads the cluster and Redis
    observation.py  what one reconcile saw, and the size that it wants
    loop_steps.py   small steps of a reconcile: decisions, start times, records
    verdicts.py     the conditions of a pool's status
    overruling.py   which other writer of the size is overruled
    acting/         carries out a plan
    reporting/      status, Events, metrics, rows in Redis
    memory.py       what a loop remembers between two reconciles
    traffic.py      whether the traffic is that which the scaling was tuned on

`scaling` decides how many replicas; `lifecycle` decides which pods leave.
"""
