"""What happened to the fleet's replicas and to Redis, found by comparing it second by second."""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from time import time

import msgspec

from pando_router.dashboard.ring import Ring
from pando_router.fleet_view.redis_state import RedisState
from pando_router.fleet_view.snapshot import Fleet, MemberState

KEPT = 300


class Happened(StrEnum):
    JOINED = "joined"  # a replica became ready for the first time
    READY = "ready"  # it is ready again
    DRAINING = "draining"
    STALLED = "stalled"
    LOST = "lost"
    LEFT = "left"  # it is gone after a drain
    MIGRATED = "migrated"  # streams went on elsewhere
    REDIS = "redis"  # Redis's state changed
    DIFFER = "differ"  # prompts lose what caches hold of them, because of a few early bytes


class Event(msgspec.Struct, frozen=True, gc=False):
    at: float  # Unix time, seconds
    what: Happened
    pool: str = ""
    replica: str = ""  # of a migration, the one that was lost
    count: int = 1  # of streams
    redis: str = ""  # its new state
    tenant: str = ""
    model: str = ""
    byte: int = 0  # from which the prompts differ


_ENTERED = {
    MemberState.DRAINING: Happened.DRAINING,
    MemberState.STALLED: Happened.STALLED,
    MemberState.LOST: Happened.LOST,
}


class FleetEvents:
    """`look` compares; `migrated` counts streams until the next look; `differed` adds one event."""

    def __init__(self) -> None:
        self.ring: Ring[Event] = Ring(KEPT)
        self._states: Mapping[tuple[str, str, str], MemberState] | None = None
        self._redis: RedisState | None = None
        self._migrated: Counter[tuple[str, str]] = Counter()

    def migrated(self, pool: str, replica: str) -> None:
        """A stream of this replica goes on at another one."""
        self._migrated[pool, replica] += 1

    def differed(self, tenant: str, model: str, byte: int) -> None:
        """The tenant's prompts to this model differ from this byte on, again and again."""
        self.ring.add(Event(time(), Happened.DIFFER, tenant=tenant, model=model, byte=byte))

    def look(self, at: float, fleet: Fleet, redis: RedisState) -> None:
        before, self._states = self._states, _states(fleet)
        if before is not None:  # the fleet as it was found is no news
            self._compare(at, before, self._states)
        migrated, self._migrated = self._migrated, Counter()
        for (pool, replica), count in migrated.items():
            self.ring.add(Event(at, Happened.MIGRATED, pool, replica, count))
        if redis is not self._redis:
            if self._redis is not None:
                self.ring.add(Event(at, Happened.REDIS, redis=redis.value))
            self._redis = redis

    def _compare(
        self,
        at: float,
        before: Mapping[tuple[str, str, str], MemberState],
        now: Mapping[tuple[str, str, str], MemberState],
    ) -> None:
        for key, state in now.items():
            known = before.get(key)
            if known is state:
                continue
            if state is MemberState.READY:
                was_served = known in _ENTERED
                self._add(at, Happened.READY if was_served else Happened.JOINED, key)
            elif what := _ENTERED.get(state):
                self._add(at, what, key)
        for key in before.keys() - now.keys():
            if before[key] is not MemberState.LOST:  # that has been said
                self._add(at, Happened.LEFT, key)

    def _add(self, at: float, what: Happened, key: tuple[str, str, str]) -> None:
        self.ring.add(Event(at, what, key[0], key[1]))


def _states(fleet: Fleet) -> dict[tuple[str, str, str], MemberState]:
    """By pool, replica and incarnation."""
    return {
        (pool, member.beat.replica, member.beat.incarnation): member.state
        for pool, members in fleet.pools.items()
        for member in members
    }
