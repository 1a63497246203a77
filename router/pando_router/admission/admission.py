"""Admission: the queues of all pools, for requests that find no place.

A request that finds a place while no other waits reads only `waiting`.

Sessions that wait for memory have queues of their own, too: calls of those that run pass them.

Requests with the same needs from the same pools share a queue, so a replica that joins or leaves
does not affect those that wait. Requests that only some replicas of a model serve (an adapter, a
path, an earlier response) have a queue of their own, so that none waits behind a request that needs
another replica.
"""

import asyncio
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from pando_router.admission.pool_queue import PoolQueue, Waiting
from pando_router.admission.priority import priority_of
from pando_router.configuration.live import Live
from pando_router.core.bounded_queue import LeaveReason, QueueLimits, is_for_us
from pando_router.core.fair_queue import Entry
from pando_router.core.flight import Flight, Flights
from pando_router.core.route import Shortage
from pando_router.core.tries import Tries
from pando_router.errors import ApiError, unavailable
from pando_router.exchange.exchange import Exchange, Order
from pando_router.fleet_view.view import FleetView
from pando_router.placing.dispatch import Dispatcher
from pando_router.placing.placers import Placers
from pando_router.placing.route import Prompt
from pando_router.telemetry.metrics import Metrics

MAX_QUEUES = 1024
"""Above it, empty queues are dropped; all they hold is the rate of their pool."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A waiting request: its prompt, its path, and the incarnations that are dead to it."""

    prompt: Prompt
    path: str
    dead: Callable[[], Collection[str]]


class Reach(NamedTuple):
    """Where a request may go; requests of equal reach share a queue."""

    pools: tuple[str, ...]
    needs: tuple[tuple[str, ...], ...]  # of each pool: the model, and what narrows the choice
    is_crowd: bool = False  # sessions for which the pool's memory has no room


class Admission:
    """`wait` gets a place for a request; `released` reports one that became free."""

    def __init__(
        self,
        live: Live,
        view: FleetView,
        flights: Flights,
        placers: Placers,
        dispatcher: Dispatcher,
        metrics: Metrics,
        rng: random.Random,
    ) -> None:
        self._live = live
        self._limits = live.derived(lambda now: QueueLimits(now.queue_requests, now.queue_bytes))
        self._view = view
        self._dispatcher = dispatcher
        self._flights = flights
        self._placers = placers
        self._metrics = metrics
        self._rng = rng
        self._queues: dict[Reach, PoolQueue[Asked, Flight]] = {}
        self._elsewhere: dict[str, int] = {}  # by pool, requests waiting at other routers
        self._arrival = asyncio.Event()
        self.waiting = 0  # requests, in all queues
        flights.on_release.append(self.released)

    def is_overtaken_by(self, prompt: Prompt) -> bool:
        """Whether placing this request now would overtake waiting ones."""
        if not self.waiting or not prompt.request.computes:
            return False
        queue = self._queues.get(_reach(prompt))
        return queue is not None and bool(queue.entries)

    def lengths(self) -> dict[str, int]:
        """The number of this router's waiting requests, by pool."""
        lengths: dict[str, int] = {}
        for reach, queue in self._queues.items():
            for pool in reach.pools:
                lengths[pool] = lengths.get(pool, 0) + len(queue.entries)
        return lengths

    def longest_wait_s(self, pool: str) -> float:
        """How long the oldest request has waited for `pool`; 0.0 if none waits."""
        queues = (queue for reach, queue in self._queues.items() if pool in reach.pools)
        return max((queue.entries.longest_wait_s for queue in queues), default=0.0)

    def waiting_tokens(self, pool: str) -> int:
        """Estimated prompt and output tokens of the requests that wait for `pool`."""
        queues = (queue for reach, queue in self._queues.items() if pool in reach.pools)
        return round(sum(queue.entries.tokens for queue in queues))

    async def until_waiting(self) -> None:
        """Returns as soon as at least one request waits."""
        if not self.waiting:
            self._arrival.clear()
            await self._arrival.wait()

    def learn(self, elsewhere: dict[str, int]) -> None:
        """Sets how many requests wait at other routers, by pool; pools not known are left out."""
        self._elsewhere = elsewhere

    def released(self, pool: str) -> None:
        """A request left a replica of `pool`; wakes its queues if the place goes to this router."""
        if not self.waiting:
            return
        queues = [
            queue for reach, queue in self._queues.items() if queue.entries and pool in reach.pools
        ]
        here = sum(len(queue.entries) for queue in queues)
        if here and is_for_us(self._rng, here, self._elsewhere.get(pool, 0)):
            for queue in queues:
                queue.wake()

    async def wait(
        self,
        exchange: Exchange,
        tries: Tries,
        order: Order,
        shortage: Shortage,
    ) -> Flight:
        """Queues the request and returns the place that it gets.

        A request that waits again has only the rest of its first time limit.

        Raises ApiError: 429 or 503 with Retry-After if the queue is full or the wait too long, 504
        if the request's own deadline has passed, 400 for a malformed priority.
        """
        prompt, settings = order.prompt, self._live.settings
        request, tenant = prompt.request, prompt.tenant
        incoming = exchange.incoming
        priority = priority_of(
            incoming.headers, request.priority, header_counts=settings.allow_priority_header
        )
        prompt_tokens = request.prompt_tokens(prompt.targets[0].bytes_per_token)
        # One that waits for a replica does not wait for memory, too: others would wait behind it.
        asked = replace(prompt, may_be_held_back=shortage.is_of_memory)
        entry = Entry(
            item=Waiting[Asked, Flight](Asked(asked, incoming.path, tries.dead_now)),
            tenant=tenant.name,
            weight=tenant.weight,
            rank=tenant.priority,
            priority=priority,
            is_back=shortage is Shortage.RETURNS,
            body_bytes=len(order.body),
            cost=prompt_tokens + request.n * request.output_tokens(settings.expected_output_tokens),
        )
        started = self._flights.clock()
        queue = self._queue(prompt, is_crowd=shortage.is_of_memory)
        left_s = tries.waits_until(settings.queue_timeout) - started
        late = partial(_no_memory if shortage.is_of_memory else _too_long, settings.queue_timeout)
        if (own_s := exchange.left_s) < left_s:
            left_s, late = own_s, partial(_past_deadline, exchange.limit_s)
        if left_s <= 0:
            raise late(queue.entries.retry_after_s())
        self.waiting += 1
        self._arrival.set()
        try:
            return await queue.wait(entry, shortage, left_s, late)
        finally:
            self.waiting -= 1
            self._metrics.queue_seconds.labels(prompt.targets[0].pool).observe(
                self._flights.clock() - started
            )

    def close(self) -> None:
        for queue in self._queues.values():
            queue.close()

    def _queue(self, prompt: Prompt, *, is_crowd: bool) -> PoolQueue[Asked, Flight]:
        reach = _reach(prompt)._replace(is_crowd=is_crowd)
        queue = self._queues.get(reach)
        if queue is None:
            if len(self._queues) >= MAX_QUEUES:
                self._queues = {key: queue for key, queue in self._queues.items() if queue.entries}
            queue = self._queues[reach] = PoolQueue(
                ", ".join(reach.pools),
                self._limits,
                self._place,
                Flight.close,
                partial(self._left, prompt.targets[0].pool),
                self._rng,
            )
        return queue

    async def _place(self, asked: Asked) -> Flight | Shortage:
        prompt = self._as_of_now(asked)
        # A place freed by this router can be taken only after Redis has received the release.
        await self._placers.settled(target.pool for target in prompt.targets)
        dead = asked.dead()
        found = await self._dispatcher.place(prompt, dead)
        if found is Shortage.NONE and dead:  # no other replica is left
            found = await self._dispatcher.place(prompt, ())
        return found

    def _as_of_now(self, asked: Asked) -> Prompt:
        """The prompt with its pools' current replicas; those at its arrival may be gone."""
        prompt = asked.prompt
        if prompt.request.earlier is not None:
            return prompt  # only the replica with its earlier response can serve it
        before = prompt.targets[0]
        targets = self._view.fleet.serving(before.adapter or before.model, asked.path)
        if not targets:
            return prompt
        first, keys = targets[0], prompt.keys
        if first.adapter_key != before.adapter_key:  # replaced, or unknown while the pool slept
            keys = prompt.request.keys(first.model, first.adapter_key, prompt.tenant.salt)
        return replace(prompt, targets=targets, keys=keys)

    def _left(self, pool: str, reason: LeaveReason) -> None:
        self._metrics.queue_ends.labels(pool, reason.value).inc()


def _reach(prompt: Prompt) -> Reach:
    targets = sorted(prompt.targets, key=lambda target: target.pool)
    return Reach(
        tuple(target.pool for target in targets),
        tuple((target.model, *target.narrowed) for target in targets),
    )


def _too_long(timeout_s: float, retry_after: int) -> ApiError:
    return unavailable(
        f"no replica had room within {timeout_s:g} s", "queue_timeout", retry_after=retry_after
    )


def _no_memory(timeout_s: float, retry_after: int) -> ApiError:
    return unavailable(
        f"other sessions filled the memory of the replicas for {timeout_s:g} s",
        "queue_timeout",
        retry_after=retry_after,
    )


def _past_deadline(timeout_s: float, retry_after: int) -> ApiError:
    return ApiError(
        504,
        f"no replica had room within the {timeout_s:g} s that the request has",
        kind="service_unavailable_error",
        code="deadline_exceeded",
        headers={"retry-after": str(retry_after)},
    )
