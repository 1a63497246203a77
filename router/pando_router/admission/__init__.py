"""Requests that wait because every replica has all that it may have.

Read in this order:
    admission.py   the queues of all pools, and who enters one
    pool_queue.py  one pool's queue, and the task that gets places for it
    priority.py    a request's priority among those of its tenant
    reports.py     tells Redis how much waits here, and learns what waits elsewhere

The order itself is in `core/line.py` and `core/fair_queue.py`. Imported by the driver.
"""
