"""Everything else in Redis, one file per kind.

Read in this order:
    rows.py         rows that the operator writes
    decisions.py    the last scaling decisions
    expected.py     pools that exist, with or without replicas
    marks.py        the operator's orders to routers about a replica
    loads.py        how many requests each replica has
    queues.py       how many requests wait in the routers
    limits.py       a tenant's rate limits
    rate_limits.py  what tenants have taken of them
    homes.py        which replica keeps a response
    recording.py    whether routers record, and the secret that hides keys

Imports redis only.
"""
