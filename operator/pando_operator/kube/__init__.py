"""A small layer over the Kubernetes client: calls with plain dicts, watches, leases and Events.

Read in this order:
    resources.py      the kinds that the operator touches
    configuration.py  which cluster, and with whose credentials
    client.py         calls with a deadline
    errors.py         one exception for each kind of reaction
    watched.py        a kind's objects in memory: one list, then a watch
    backoff.py        delays after failures
    lease.py          leader election
    terms.py          the durations of the lease
    events.py         Events about pools

Imports nothing else of the operator.
"""
