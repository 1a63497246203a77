"""How a replica is chosen. `make` builds the policy that the settings name."""

import random
from collections.abc import Sequence
from typing import Protocol

from pando_router.fleet_view import Member
from pando_router.in_flight import InFlight
from pando_router.policies.cache_aware import CacheAware
from pando_router.policies.least_loaded import LeastLoaded
from pando_router.policies.random_choice import RandomChoice
from pando_router.policies.round_robin import RoundRobin
from pando_router.settings import PolicyName


class Policy(Protocol):
    """`pick` is asked for every request, or where `shared` only when the shared placement cannot.

    `affinity` is the start of the prompt, `members` are at least one and sorted by name.
    """

    shared: bool  # the placement in Redis decides

    def pick(self, affinity: bytes, members: Sequence[Member]) -> Member: ...


def make(name: PolicyName, in_flight: InFlight, rng: random.Random) -> Policy:
    match name:
        case "cache_aware":
            return CacheAware(in_flight)
        case "round_robin":
            return RoundRobin()
        case "random":
            return RandomChoice(rng)
        case "least_loaded":
            return LeastLoaded(in_flight)
