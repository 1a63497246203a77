"""What else stands in Redis, one file a kind.

Read in this order:
    rows.py         rows that the operator writes
    decisions.py    the last scaling decisions
    expected.py     pools that exist, with or without replicas
    marks.py        what the operator asks of routers about a replica
    loads.py        how many requests are at each replica
    queues.py       how many wait
    rate_limits.py  what tenants may take
    homes.py        which replica keeps a response

Imports redis alone.
"""
