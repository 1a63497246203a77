"""A simulated router around the real deciding core.

Read in this order:
    router.py            `pando_router.core` driven by the virtual clock
    job.py               a request, from its arrival to its end
    view.py              the fleet as routers know it
    interfaces.py        the placement policy that plugs in
    context.py           what a policy may know
    shared_placement.py  Pando's own placement, with the same scripts
    errand.py            a coroutine that waits for virtual time

Imports fleet's placement and the router's core.
"""
