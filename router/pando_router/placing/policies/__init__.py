"""How a replica is chosen: `Policies` has the one that the operator, or a request, wants.

A policy is one method. All of them end in a lease in Redis, so that what one router sends counts
for every other.
"""

import random
from collections.abc import Sequence
from typing import Protocol

from pando_router.configuration.live import Live
from pando_router.configuration.settings import PolicyName
from pando_router.fleet_view.view import Member
from pando_router.placing.policies.cache_aware import CacheAware
from pando_router.placing.policies.least_loaded import LeastLoaded
from pando_router.placing.policies.loads import Loads
from pando_router.placing.policies.power_of_two import PowerOfTwo
from pando_router.placing.policies.prefix_hash import PrefixHash
from pando_router.placing.policies.random_choice import RandomChoice
from pando_router.placing.policies.round_robin import RoundRobin
from pando_router.placing.policies.session import Session
from pando_router.placing.route import Prompt


class Policy(Protocol):
    def pick(self, prompt: Prompt, members: Sequence[Member]) -> Member | None:
        """One of `members` (at least one, sorted by name); None: by the shared state in Redis."""
        ...


def make(name: PolicyName, loads: Loads, rng: random.Random) -> Policy:
    match name:
        case "cache_aware":
            return CacheAware()
        case "round_robin":
            return RoundRobin()
        case "random":
            return RandomChoice(rng)
        case "power_of_two":
            return PowerOfTwo(loads, rng)
        case "least_loaded":
            return LeastLoaded(loads)
        case "prefix_hash":
            return PrefixHash(loads)
        case "session":
            return Session()


class Policies:
    """The policies of all pools. Each pool has its own of a kind, as some count turns."""

    def __init__(self, live: Live, loads: Loads, rng: random.Random) -> None:
        self._live = live
        self._loads = loads
        self._rng = rng
        self._made: dict[tuple[str, PolicyName], Policy] = {}

    def name(self, pool: str, wanted: PolicyName | None = None) -> PolicyName:
        """The policy of a pool, unless a request wants another."""
        settings = self._live.settings
        return wanted or settings.pool_policies.get(pool, settings.policy)

    def of(self, pool: str, name: PolicyName) -> Policy:
        policy = self._made.get((pool, name))
        if policy is None:
            policy = self._made[pool, name] = make(name, self._loads, self._rng)
        return policy
