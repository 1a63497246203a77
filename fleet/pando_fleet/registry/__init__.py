"""Which replicas are alive.

Read in this order:
    adapter.py    a LoRA adapter of a replica
    replica.py    what a worker reports in each heartbeat
    registry.py   heartbeats by pool, aged by Redis's clock
    upstreams.py  engines without heartbeats

Imports records and redis.
"""
