"""Reports each reconcile: status, Events, metrics, rows in Redis.

Read in this order:
    reporter.py  writes all of them
    status.py    decides when a changed status is written

Imports loop_steps, verdicts and acting.
"""
