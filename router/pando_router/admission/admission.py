"""Admission: the queues of all pools, which requests enter when there is no place for them.

A request that finds a place while nobody waits touches none of this but `waiting`.
Requests that ask for the same of the same pools share a queue, whichever replicas these have now:
one that joins or leaves changes nothing for who waits. What only some replicas of a model serve
(an adapter, a path, an earlier response) has a queue of its own, so that nobody waits behind a
request that needs another replica.
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
from pando_router.core.fair_queue import Entry
from pando_router.core.flight import Flight, Flights
from pando_router.core.line import LeaveReason, Limits, is_for_us
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
"""Empty queues are forgotten above it; they hold nothing but the rate of their pool."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What waits: the prompt, the path that it came by, and who of the replicas is dead to it."""

    prompt: Prompt
    path: str
    dead: Callable[[], Collection[str]]


class Reach(NamedTuple):
    """Where a request may go; those of one reach share a queue."""

    pools: tuple[str, ...]
    asks: tuple[tuple[str, ...], ...]  # of each pool: the model, and what narrows the choice


class Admission:
    """`wait` for a place; `released` says that one may be free."""

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
        self._limits = live.derived(lambda now: Limits(now.queue_requests, now.queue_bytes))
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
        """Whether requests wait whose turn is before this one."""
        if not self.waiting or not prompt.request.computes:
            return False
        queue = self._queues.get(_reach(prompt))
        return queue is not None and bool(queue.line)

    def lengths(self) -> dict[str, int]:
        """By pool the requests of this router that wait for one of its replicas."""
        lengths: dict[str, int] = {}
        for reach, queue in self._queues.items():
            for pool in reach.pools:
                lengths[pool] = lengths.get(pool, 0) + len(queue.line)
        return lengths

    def longest_wait_s(self, pool: str) -> float:
        """By the request that waits longest for `pool`; 0.0 where none does."""
        queues = (queue for reach, queue in self._queues.items() if pool in reach.pools)
        return max((queue.line.longest_wait_s for queue in queues), default=0.0)

    def waiting_tokens(self, pool: str) -> int:
        """Estimated, of the prompts and the expected outputs of those that wait for `pool`."""
        queues = (queue for reach, queue in self._queues.items() if pool in reach.pools)
        return round(sum(queue.line.tokens for queue in queues))

    async def somebody_waits(self) -> None:
        """Returns at once where requests wait, else when the first one does."""
        if not self.waiting:
            self._arrival.clear()
            await self._arrival.wait()

    def learn(self, elsewhere: dict[str, int]) -> None:
        """How many requests wait for each pool at other routers; none where that is not known."""
        self._elsewhere = elsewhere

    def released(self, pool: str) -> None:
        """A stay at a replica of `pool` has ended: its place is for one who waits here, or not."""
        if not self.waiting:
            return
        queues = [q for reach, q in self._queues.items() if q.line and pool in reach.pools]
        here = sum(len(queue.line) for queue in queues)
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
        """The request's place, in its turn.

        A request that comes again has what is left of the time that it had at first.
        Raises ApiError: 429 and 503 with Retry-After where the queue is full or the wait too long,
        504 where the request's own time is over, 400.
        """
        prompt, settings = order.prompt, self._live.settings
        request, tenant = prompt.request, prompt.tenant
        incoming = exchange.incoming
        priority = priority_of(
            incoming.headers, request.priority, header_counts=settings.allow_priority_header
        )
        prompt_tokens = request.prompt_tokens(prompt.targets[0].bytes_per_token)
        entry = Entry(
            what=Waiting[Asked, Flight](Asked(prompt, incoming.path, tries.dead_now)),
            tenant=tenant.name,
            weight=tenant.weight,
            rank=tenant.priority,
            priority=priority,
            body_bytes=len(order.body),
            cost=prompt_tokens + request.n * request.output_tokens(settings.expected_output_tokens),
        )
        started = self._flights.clock()
        queue = self._queue(prompt)
        left_s = tries.waits_until(settings.queue_timeout) - started
        late = partial(_too_long, settings.queue_timeout)
        if (own_s := exchange.left_s) < left_s:
            left_s, late = own_s, partial(_past_deadline, exchange.limit_s)
        if left_s <= 0:
            raise late(queue.line.retry_after_s())
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

    def _queue(self, prompt: Prompt) -> PoolQueue[Asked, Flight]:
        reach = _reach(prompt)
        queue = self._queues.get(reach)
        if queue is None:
            if len(self._queues) >= MAX_QUEUES:
                self._queues = {key: queue for key, queue in self._queues.items() if queue.line}
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
        # A place that was given back here is free once Redis knows it.
        await self._placers.settled(target.pool for target in prompt.targets)
        dead = asked.dead()
        found = await self._dispatcher.place(prompt, dead)
        if found is Shortage.NONE and dead:  # there is nobody else
            found = await self._dispatcher.place(prompt, ())
        return found

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


def _past_deadline(timeout_s: float, retry_after: int) -> ApiError:
    return ApiError(
        504,
        f"no replica had room within the {timeout_s:g} s that the request has",
        kind="service_unavailable_error",
        code="deadline_exceeded",
        headers={"retry-after": str(retry_after)},
    )
