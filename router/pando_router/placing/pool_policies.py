"""Which policy each pool has: the one that the settings, or a request, want."""

import random

from pando_router.configuration.live import Live
from pando_router.configuration.settings import PolicyName
from pando_router.policies import POLICIES
from pando_router.policies.loads import Loads
from pando_router.policies.policy import Policy


class PoolPolicies:
    """Each pool has its own policy of a kind, because some count turns."""

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
            policy = self._made[pool, name] = POLICIES[name].make(self._loads, self._rng)
        return policy
