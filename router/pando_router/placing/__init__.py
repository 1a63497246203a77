"""Which replica a request goes to: by a policy, in Redis or without it.

Read in this order:
    route.py              a request whose model exists, and a place for it
    policies/             one file a policy, and their registry
    dispatch.py           policy, shared placement and breaker brought together
    placers.py            each pool's way to the shared placement, and its leases
    steering.py           what a request says of its own placement
    shadow.py             a second policy that chooses, too, and is only measured
    lost_lease_writes.py  reports lease updates that did not reach Redis

The shared placement itself is `pando_fleet.placement`; without Redis, `core/alone.py` chooses.
Leases expire in `pando_fleet.placement.keeper`. Imports fleet_view, core and requests.
"""
