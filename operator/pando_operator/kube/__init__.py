"""A small layer over the Kubernetes client: calls with plain dicts, watches, leases and events.

Read in this order:
    resources.py  the kinds that the operator touches
    client.py     calls with a deadline
    errors.py     an exception for each thing to do about it
    watched.py    a kind's objects in memory: one list, then a watch
    backoff.py    how long to wait after failures
    lease.py      leader election
    terms.py      how long the lease lasts
    events.py     Events about pools

Imports nothing else of the operator.
"""
