"""Reads one pool from Redis: marks, the requests at each replica, and the scaling signals."""

import asyncio
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from pando_fleet.placement.worth import Worths
from pando_fleet.records.loads import Loads
from pando_fleet.records.marks import Mark, Marks
from pando_fleet.records.queues import Queued, Queues
from pando_fleet.redis.layout.constants import FRESH_MS
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Replica, ReplicaState
from pando_operator.scaling import Signals

READ_S = 3.0  # a slower Redis counts as unreachable


@dataclass(frozen=True, slots=True)
class Reading:
    marks: Sequence[Mark]
    requests: dict[str, int]  # by replica, for those with a fresh heartbeat or a lease
    stalled: Set[str]  # replicas that report it themselves
    heard: Set[str]  # replicas with a fresh heartbeat
    signals: Signals
    replicas: Sequence[Replica] = ()


def reading_of(
    marks: Sequence[Mark], replicas: Sequence[Replica], queued: Queued, leased: Mapping[str, int]
) -> Reading:
    """Combine what was read from Redis.

    `marks` must have been read before the rest: then no request counted here was placed on a
    replica after its drain mark. The requests of a stalled replica move elsewhere, so only its
    leases show what is left there.
    """
    fresh = [one.beat for one in replicas if one.age_ms <= FRESH_MS]
    stalled = {beat.replica for beat in fresh if beat.state is ReplicaState.STALLED}
    requests = {
        beat.replica: 0 if beat.replica in stalled else beat.running + beat.waiting
        for beat in fresh
    }
    for replica, leases in leased.items():
        if leases:  # a silent replica may still run its requests
            requests[replica] = max(leases, requests.get(replica, 0))
    heard = {beat.replica for beat in fresh}
    return Reading(marks, requests, stalled, heard, Signals.of(replicas, queued), replicas)


class Reader:
    """Reads one pool."""

    def __init__(
        self,
        registry: Registry,
        queues: Queues,
        marks: Marks,
        loads: Loads,
        worths: Worths,
        pool: str,
    ) -> None:
        self._registry, self._queues, self._marks, self._loads = registry, queues, marks, loads
        self._worths = worths
        self._pool = pool
        self._replicas: Sequence[Replica] = ()

    async def read(self) -> Reading:
        """Raises FleetError, or TimeoutError after READ_S."""
        async with asyncio.timeout(READ_S):
            marks = await self._marks.all()
            replicas, queued, leased = await asyncio.gather(
                self._registry.replicas(self._pool),
                self._queues.read(self._pool),
                self._loads.read(),
            )
        self._replicas = replicas
        return reading_of(marks, replicas, queued, leased)

    async def worths(self) -> dict[str, float]:
        """The worth of each replica's cache, for the replicas read last. Raises like `read`."""
        async with asyncio.timeout(READ_S):
            return await self._worths.read(self._replicas)
