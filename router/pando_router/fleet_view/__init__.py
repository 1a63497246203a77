"""The fleet and Redis as this router last saw them; kept while Redis is away.

Read in this order:
    snapshot.py         `Fleet`: the replicas as last known
    advance.py          the next snapshot, from what was read and heard since
    targets.py          which replicas serve which model or adapter
    view.py             `FleetView`: reads Redis in the background and keeps the snapshot
    models.py           model names, and the replicas that serve them
    rounds.py           repeats work for several names, each at its own pace
    redis_state.py      up, full, read-only or away
    calm.py             how long a returning server must answer before it counts as up
    redis_memory.py     watches Redis's memory
    replica_row.py      a replica's row in /fleet and the dashboard
    replica_metrics.py  gauges of the replicas
    decisions.py        the operator's last scaling decisions

Reads `pando_fleet.registry`; health checks are in `health/`.
"""
