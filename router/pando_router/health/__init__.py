"""Which replicas are well, beyond what their heartbeats say.

Read in this order:
    checks.py      asks each ready replica for its health
    verdict.py     changes its mind only after several answers in a row
    abandoning.py  takes requests away from replicas that are out

What requests themselves find out is in `core/breaker.py`.
"""
