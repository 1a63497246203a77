"""Health checks of replicas, in addition to their heartbeats.

Read in this order:
    checks.py      checks the health of each ready replica
    verdict.py     changes only after several equal results in a row
    abandoning.py  takes requests away from lost replicas

What requests themselves find out is in `core/breaker.py`.
"""
