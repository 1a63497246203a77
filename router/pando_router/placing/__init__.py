"""Places each request on a replica: by a policy, with Redis or without it.

Read in this order:
    route.py              resolves a request's model to the pools that serve it
    pool_policies.py      which policy each pool has; the policies are in `pando_router.policies`
    dispatch.py           combines policy, shared placement and breaker
    placers.py            each pool's connection to the shared placement, and its leases
    steering.py           headers by which a request steers its own placement
    shadow.py             a second policy whose choices are only measured
    lost_lease_writes.py  reports lease updates that did not reach Redis

The shared placement itself is `pando_fleet.placement`; without Redis, `core/alone.py` chooses.
`pando_fleet.placement.keeper` renews leases; the setting `lease_seconds` is how long they last.
Imports fleet_view, core and requests.
"""
