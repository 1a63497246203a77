"""Who lives.

Read in this order:
    replica.py    what a worker says of itself in each heartbeat
    registry.py   heartbeats by pool, aged by Redis's clock
    upstreams.py  engines that send none

Imports records and redis.
"""
