"""The fleet and Redis as this router last knew them; kept while Redis is away.

Read in this order:
    view.py             `FleetView`: the replicas, refreshed in the background
    models.py           names of models, and who answers them
    rounds.py           work done for each of some names, at its own pace
    redis_state.py      up, full, read-only or away
    calm.py             how long a server that comes back must answer to count as up
    redis_memory.py     how much memory Redis has
    replica_row.py      a replica as people see it
    replica_metrics.py  gauges of the replicas
    decisions.py        the operator's last scaling decisions

Reads `pando_fleet.registry`; who is well beyond that is in `health/`.
"""
