"""Queues requests while every replica is at its limit.

Read in this order:
    admission.py   the queues of all pools, and which one a request enters
    pool_queue.py  one queue, and the task that gets places for it
    priority.py    a request's priority within its tenant
    reports.py     reports queue lengths to Redis and reads other routers' lengths

The order itself is in `core/bounded_queue.py` and `core/fair_queue.py`. Imported by the driver.
"""
