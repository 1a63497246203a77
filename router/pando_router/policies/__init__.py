"""The policies by which a replica is chosen: one module each, all listed in `POLICIES`.

Read in this order:
    policy.py   what a policy is, and its entry in the registry
    inputs.py   what it sees of a request and of replicas
    loads.py    a replica's load
    cache_aware.py, least_loaded.py, power_of_two.py, prefix_hash.py
    random_choice.py, round_robin.py, session.py

To add one, copy least_loaded.py and list it here. The settings, `--help`, the header
x-pando-policy, the chart's schema, the simulator and the pages have it from here.

A policy does no I/O; whatever it chooses, the request ends in a lease in Redis (`placing/`), so
what one router sends counts for every other. Imports core.
"""

from pando_fleet.choices import by_name
from pando_router.policies.cache_aware import CACHE_AWARE
from pando_router.policies.least_loaded import LEAST_LOADED
from pando_router.policies.power_of_two import POWER_OF_TWO
from pando_router.policies.prefix_hash import PREFIX_HASH
from pando_router.policies.random_choice import RANDOM
from pando_router.policies.round_robin import ROUND_ROBIN
from pando_router.policies.session import SESSION

POLICIES = by_name(
    CACHE_AWARE,
    ROUND_ROBIN,
    RANDOM,
    POWER_OF_TWO,
    LEAST_LOADED,
    PREFIX_HASH,
    SESSION,
)
