"""Admission: the queues of all pools, which requests enter when there is no place for them.

A request that finds a place while nobody waits touches none of this but `waiting`.
Requests that may go to the same replicas share a queue.
"""

import asyncio
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import NamedTuple

from msgspec.structs import replace

from pando_router.admission.claims import claims
from pando_router.admission.pool_queue import LeaveReason, Limits, PoolQueue, Waiting
from pando_router.core.fair_queue import Entry
from pando_router.core.flight import Flights
from pando_router.core.shortage import Shortage
from pando_router.dispatch import Dispatcher
from pando_router.errors import ApiError, unavailable
from pando_router.exchange import Exchange
from pando_router.fleet_view import FleetView
from pando_router.live import Derived, Live
from pando_router.metrics import Metrics
from pando_router.route import Prompt, Route

MAX_QUEUES = 1024
"""Empty queues are forgotten above it; they hold nothing but the rate of their pool."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What waits: the prompt, the path that it came by, and who of the replicas is dead to it."""

    prompt: Prompt
    path: str
    dead: Callable[[], Collection[str]]


@dataclass(frozen=True, slots=True)
class Placed:
    prompt: Prompt
    route: Route


class Reach(NamedTuple):
    """Where a request may go; those of one reach share a queue."""

    pools: tuple[str, ...]
    replicas: tuple[str, ...] = ()  # empty: all of the pools


class Admission:
    """`wait` for a place; `released` says that one may be free."""

    def __init__(
        self,
        live: Live,
        view: FleetView,
        dispatcher: Dispatcher,
        flights: Flights,
        metrics: Metrics,
        rng: random.Random,
    ) -> None:
        self._live = live
        self._limits = Derived(live, lambda now: Limits(now.queue_requests, now.queue_bytes))
        self._view = view
        self._dispatcher = dispatcher
        self._flights = flights
        self._metrics = metrics
        self._rng = rng
        self._queues: dict[Reach, PoolQueue[Asked, Placed]] = {}
        self._elsewhere: dict[str, int] = {}  # by pool, requests waiting at other routers
        self._arrival = asyncio.Event()
        self.waiting = 0  # requests, in all queues

    def queued(self, prompt: Prompt) -> bool:
        """Whether requests wait that this one would overtake."""
        return prompt.request.computes and bool(self._queues.get(_reach(prompt)))

    def lengths(self) -> dict[str, int]:
        """By pool the requests of this router that wait for one of its replicas."""
        lengths: dict[str, int] = {}
        for reach, queue in self._queues.items():
            for pool in reach.pools:
                lengths[pool] = lengths.get(pool, 0) + len(queue)
        return lengths

    def longest_wait_s(self, pool: str) -> float:
        """By the request that waits longest for `pool`; 0.0 where none does."""
        queues = (queue for reach, queue in self._queues.items() if pool in reach.pools)
        return max((queue.longest_wait_s for queue in queues), default=0.0)

    def waiting_tokens(self, pool: str) -> int:
        """Estimated, of the prompts and the expected outputs of those that wait for `pool`."""
        queues = (queue for reach, queue in self._queues.items() if pool in reach.pools)
        return round(sum(queue.tokens for queue in queues))

    async def somebody_waits(self) -> None:
        """Returns at once where requests wait, else when the first one does."""
        if not self.waiting:
            self._arrival.clear()
            await self._arrival.wait()

    def learn(self, elsewhere: dict[str, int]) -> None:
        """How many requests wait for each pool at other routers; none where that is not known."""
        self._elsewhere = elsewhere

    def released(self, pool: str) -> None:
        """A request at a replica of `pool` has ended.

        Its place is for the next one here with the chance that the next one of all who wait is
        here; else it is left to whichever router looks first. Without that, a router whose requests
        have all places would keep them as long as it has a queue.
        """
        if not self.waiting:
            return
        queues = [queue for reach, queue in self._queues.items() if queue and pool in reach.pools]
        here = sum(map(len, queues))
        if self._rng.random() * (here + self._elsewhere.get(pool, 0)) >= here:
            return
        for queue in queues:
            queue.wake()

    async def wait(
        self, exchange: Exchange, prompt: Prompt, body_bytes: int, shortage: Shortage
    ) -> Route:
        """The request's place, in its turn.

        A request that comes again has what is left of the time that it had at first.
        Raises ApiError: 429 and 503 with Retry-After where the queue is full or the wait too long,
        504 where it was longer than the request's own x-request-timeout, 400.
        """
        request, tenant, settings = prompt.request, prompt.tenant, self._live.settings
        incoming = exchange.incoming
        claimed = claims(
            incoming.headers, request.priority, header_counts=settings.allow_priority_header
        )
        timeout_s, late = settings.queue_timeout, partial(_too_long, settings.queue_timeout)
        if claimed.timeout_s is not None and claimed.timeout_s < timeout_s:
            timeout_s, late = claimed.timeout_s, partial(_past_deadline, claimed.timeout_s)
        prompt_tokens = request.prompt_tokens(prompt.targets[0].bytes_per_token)
        entry = Entry(
            what=Waiting[Asked, Placed](
                Asked(prompt, incoming.path, exchange.dead_now), body_bytes
            ),
            tenant=tenant.name,
            weight=tenant.weight,
            rank=tenant.priority,
            priority=claimed.priority,
            cost=prompt_tokens + request.n * request.output_tokens(settings.expected_output_tokens),
        )
        started = perf_counter()
        if exchange.deadline is None:
            exchange.deadline = started + timeout_s
        queue = self._queue(prompt)
        left_s = exchange.deadline - started
        if left_s <= 0:
            raise late(queue.retry_after_s())
        self.waiting += 1
        self._arrival.set()
        try:
            placed = await queue.wait(entry, shortage, left_s, late)
            return placed.route
        finally:
            self.waiting -= 1
            self._metrics.queue_seconds.labels(prompt.targets[0].pool).observe(
                perf_counter() - started
            )

    def close(self) -> None:
        for queue in self._queues.values():
            queue.close()

    def _queue(self, prompt: Prompt) -> PoolQueue[Asked, Placed]:
        reach = _reach(prompt)
        queue = self._queues.get(reach)
        if queue is None:
            if len(self._queues) >= MAX_QUEUES:
                self._queues = {key: queue for key, queue in self._queues.items() if queue}
            queue = self._queues[reach] = PoolQueue(
                ", ".join(reach.pools),
                self._limits,
                self._place,
                self._give_back,
                partial(self._left, prompt.targets[0].pool),
                self._rng,
            )
        return queue

    async def _place(self, asked: Asked) -> Placed | Shortage:
        prompt = self._as_of_now(asked)
        # A place that was given back here is free once Redis knows it.
        await self._dispatcher.settled(prompt)
        dead = asked.dead()
        found = await self._dispatcher.place(prompt, dead)
        if found is Shortage.NONE and dead:  # there is nobody else
            found = await self._dispatcher.place(prompt, ())
        return found if isinstance(found, Shortage) else Placed(prompt, found)

    def _as_of_now(self, asked: Asked) -> Prompt:
        """The prompt with the replicas of today: those that it came with may be gone."""
        prompt = asked.prompt
        if prompt.request.earlier is not None:
            return prompt  # it belongs to one replica
        before = prompt.targets[0]
        targets = self._view.fleet.serving(before.adapter or before.model, asked.path)
        if not targets:
            return prompt
        first, keys = targets[0], prompt.keys
        if first.adapter != before.adapter:  # nobody knew while the pool slept
            keys = prompt.request.keys(first.model, first.adapter, prompt.tenant.salt)
        return replace(prompt, targets=targets, keys=keys)

    def _give_back(self, placed: Placed) -> None:
        self._flights.abandon(placed.prompt, placed.route)
        self.released(placed.route.pool)

    def _left(self, pool: str, reason: LeaveReason) -> None:
        self._metrics.queue_ends.labels(pool, reason.value).inc()


def _reach(prompt: Prompt) -> Reach:
    targets = prompt.targets
    pools = (targets[0].pool,) if len(targets) == 1 else tuple(sorted(t.pool for t in targets))
    if not any(target.foreign for target in targets):
        return Reach(pools)
    return Reach(pools, tuple(m.beat.replica for target in targets for m in target.members))


def _too_long(timeout_s: float, retry_after: int) -> ApiError:
    return unavailable(
        f"no replica had room within {timeout_s:g} s", "queue_timeout", retry_after=retry_after
    )


def _past_deadline(timeout_s: float, retry_after: int) -> ApiError:
    return ApiError(
        504,
        f"no replica had room within the {timeout_s:g} s of x-request-timeout",
        kind="service_unavailable_error",
        code="deadline_exceeded",
        headers={"retry-after": str(retry_after)},
    )
