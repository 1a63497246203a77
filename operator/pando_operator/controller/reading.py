"""One look at a pool in Redis: marks, what runs on each replica, and the signals of a decision."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pando_fleet.loads import Loads
from pando_fleet.marks import Mark, Marks
from pando_fleet.queues import Queued, Queues
from pando_fleet.registry import FRESH_MS, Registry
from pando_fleet.replica import Replica, ReplicaState
from pando_operator.scaling import ReplicaLoad, RouterQueue, Signals

READ_S = 3.0  # then Redis counts as away


@dataclass(frozen=True, slots=True)
class Reading:
    marks: Sequence[Mark]
    requests: dict[str, int]  # by replica whose heartbeat is fresh
    signals: Signals


class Reader:
    """Of one pool."""

    def __init__(
        self, registry: Registry, queues: Queues, marks: Marks, loads: Loads, pool: str
    ) -> None:
        self._registry, self._queues, self._marks, self._loads = registry, queues, marks, loads
        self._pool = pool

    async def read(self) -> Reading:
        """Raises FleetError or TimeoutError where Redis cannot say."""
        async with asyncio.timeout(READ_S):
            # A request that is placed after this is not on a replica that has a drain mark here.
            marks = await self._marks.all()
            replicas, queued, leased = await asyncio.gather(
                self._registry.replicas(self._pool),
                self._queues.read(self._pool),
                self._loads.read(),
            )
        requests = {
            one.beat.replica: max(one.beat.running + one.beat.waiting, leased[one.beat.replica])
            for one in replicas
            if one.age_ms <= FRESH_MS
        }
        return Reading(marks, requests, signals_of(replicas, queued))

    async def worths(self) -> dict[str, float]:
        return {}


def signals_of(replicas: Sequence[Replica], queued: Queued) -> Signals:
    return Signals(
        loads=tuple(
            ReplicaLoad(
                name=one.beat.replica,
                incarnation=one.beat.incarnation,
                age_s=one.age_ms / 1000,
                capacity_tokens=one.beat.capacity_tokens,
                pinned_tokens=one.beat.pinned_tokens,
                cached_tokens=one.beat.cached_tokens,
                running=one.beat.running,
                waiting=one.beat.waiting,
                waiting_prompt_tokens=one.beat.waiting_tokens,
                waiting_output_tokens=0,
                prefill_tokens_per_s=one.beat.prefill_tokens_per_s,
                release_tokens_per_s=one.beat.release_tokens_per_s,
                prompt_tokens_total=one.beat.prompt_tokens_total,
                hot_evicted_tokens_total=0,
            )
            for one in replicas
            if one.beat.state is ReplicaState.READY and not one.withheld
        ),
        queue=RouterQueue(requests=queued.requests, waited_s=queued.waited_ms / 1000),
    )
