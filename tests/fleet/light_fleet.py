"""A fleet in virtual time: the real placement scripts in a real Redis, and workers that only count.

A worker is one prefill queue with a given rate and a cache of whole chunks, evicted by age;
requests
decode in parallel at a fixed pace. All events are in one heap. Routers get the requests by turns:
either the fleet's own Placers, one request at a time, so that the same requests give the same run;
or given routers, which race for simultaneous arrivals and write at their own times.
"""

import asyncio
import heapq
import itertools
import struct
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Protocol

from pando_fleet.placement.placer import Ask, Placement, Placer
from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_fleet.redis.client import RedisClient
from pando_fleet.redis.wire import Wire
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Heartbeat, ReplicaState

POOL = "light"
FLUSH_MS = 2.0  # how long a router delays its writes, in virtual time


@dataclass(frozen=True, slots=True)
class Request:
    at_ms: float
    chunks: tuple[int, ...]  # ids, each for a chunk and everything before it
    tokens: int
    output_tokens: int


@dataclass(slots=True)
class Worker:
    capacity_chunks: int
    prefill_per_s: float  # tokens
    cache: OrderedDict[int, None] = field(default_factory=OrderedDict)
    free_at_ms: float = 0.0
    pinned_tokens: int = 0

    def hold(self, chunks: tuple[int, ...]) -> int:
        """Caches the path; returns how many chunks of it were cached already."""
        held = len(list(itertools.takewhile(self.cache.__contains__, chunks)))
        for chunk in reversed(chunks):  # the root last, so that leaves are older
            self.cache[chunk] = None
            self.cache.move_to_end(chunk)
        while len(self.cache) > self.capacity_chunks:
            self.cache.popitem(last=False)
        return held


@dataclass(slots=True)
class Outcome:
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefilled: Counter[str] = field(default_factory=Counter)  # tokens computed, by replica
    requests: Counter[str] = field(default_factory=Counter)
    served: list[tuple[float, str, Request, float]] = field(default_factory=list)
    """When placed, where, what, and the time to first token in ms."""

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens

    def ttft_ms(self, share: float) -> float:
        times = sorted(ttft for *_, ttft in self.served)
        return times[int(share * (len(times) - 1))]


_Moments = Iterator[tuple[float, Iterator[Request]]]
"""Moments of arrival, with their requests."""


class Router(Protocol):
    """The interface of a router; a Placer has it."""

    def place(self, ask: Ask) -> Awaitable[Placement]: ...
    def prefilled(self, placement: Placement) -> None: ...
    def cut(self, placement: Placement, keys: bytes, depth: int) -> None: ...
    def release(self, placement: Placement) -> None: ...
    async def flush(self) -> None: ...


class LightFleet:
    """`await LightFleet(...).run(requests)`."""

    def __init__(
        self,
        redis: RedisClient,
        *,
        replicas: int = 8,
        routers: int = 1,
        capacity_chunks: int = 4_000,
        prefill_per_s: float = 10_000.0,
        decode_ms: float = 20.0,  # per token
        chunk_tokens: int = 64,
        beat_ms: float = 500.0,
        racing: Sequence[Router] = (),
    ) -> None:
        """`racing` routers replace the `routers` that the fleet would create."""
        self.now_ms = 1_000_000.0
        self.workers = {f"r{n}": Worker(capacity_chunks, prefill_per_s) for n in range(replicas)}
        self.outcome = Outcome()
        self._decode_ms = decode_ms
        self._chunk_tokens = chunk_tokens
        self._beat_ms = beat_ms
        self._is_race = len(racing) > 0
        self._wires = [] if racing else [Wire(redis) for _ in range(routers)]
        self._routers: Sequence[Router] = racing or [
            Placer(wire, POOL, self.clock, every_s=None) for wire in self._wires
        ]
        self._registry = Registry(redis, self.clock)
        self._events: list[tuple[float, int, Callable[[], Awaitable[None]]]] = []
        self._numbers = itertools.count()

    async def run(self, requests: Iterable[Request]) -> Outcome:
        moments = itertools.groupby(requests, attrgetter("at_ms"))
        self._at(self.now_ms, self._beat)
        self._next_arrivals(moments, self.now_ms)
        arrivals_left = True
        try:
            while self._events and (arrivals_left or len(self._events) > 1):
                self.now_ms, _, act = heapq.heappop(self._events)
                await act()
                arrivals_left = self._arriving
        finally:
            for router in self._routers:
                await router.flush()
            for wire in self._wires:
                await wire.aclose()
        return self.outcome

    def clock(self) -> int:
        return int(self.now_ms)

    def _at(self, when_ms: float, act: Callable[[], Awaitable[None]]) -> None:
        heapq.heappush(self._events, (when_ms, next(self._numbers), act))

    def _next_arrivals(self, moments: _Moments, start_ms: float) -> None:
        at_ms, group = next(moments, (0.0, None))
        self._arriving = group is not None
        if group is not None:
            act = partial(self._arrive, list(group), moments, start_ms)
            self._at(start_ms + at_ms, act)

    async def _arrive(self, requests: list[Request], moments: _Moments, start_ms: float) -> None:
        self._next_arrivals(moments, start_ms)
        if self._is_race:
            await asyncio.gather(*map(self._place, requests))
        else:
            for request in requests:
                await self._place(request)

    async def _place(self, request: Request) -> None:
        number = next(self._numbers)
        router = self._routers[number % len(self._routers)]
        placed = await router.place(
            Ask(
                keys=struct.pack(f">{len(request.chunks)}Q", *request.chunks),
                prompt_tokens=request.tokens,
                output_tokens=request.output_tokens,
                lease=str(number),
                lease_ms=3_600_000,
            )
        )
        if not self._is_race:
            self._at(self.now_ms + FLUSH_MS, router.flush)
        name = placed.chosen.replica
        worker = self.workers[name]
        # The cached part is known when the prefill begins.
        begin_ms = max(self.now_ms, worker.free_at_ms)
        expected = max(1, request.tokens - placed.chosen.matched_tokens)
        worker.free_at_ms = begin_ms + 1000 * expected / worker.prefill_per_s
        self._at(begin_ms, partial(self._prefill, request, placed, router, self.now_ms, expected))

    async def _prefill(
        self, request: Request, placed: Placement, router: Router, asked_ms: float, expected: int
    ) -> None:
        name, outcome = placed.chosen.replica, self.outcome
        worker = self.workers[name]
        cached = min(request.tokens - 1, worker.hold(request.chunks) * self._chunk_tokens)
        computed = request.tokens - cached
        # The queue was computed from the tree's promise; the difference shifts later requests.
        worker.free_at_ms += 1000 * (computed - expected) / worker.prefill_per_s
        worker.pinned_tokens += request.tokens
        outcome.prompt_tokens += request.tokens
        outcome.cached_tokens += cached
        outcome.prefilled[name] += computed
        outcome.requests[name] += 1
        first_ms = self.now_ms + 1000 * computed / worker.prefill_per_s
        outcome.served.append((asked_ms, name, request, first_ms - asked_ms))
        self._at(first_ms, partial(self._first_token, request, placed, router, cached))
        end_ms = first_ms + self._decode_ms * request.output_tokens
        self._at(end_ms, partial(self._end, request, placed, router))

    async def _first_token(
        self, request: Request, placed: Placement, router: Router, cached: int
    ) -> None:
        router.prefilled(placed)
        if cached < placed.chosen.matched_tokens - self._chunk_tokens:
            keys = struct.pack(f">{len(request.chunks)}Q", *request.chunks)
            router.cut(placed, keys, cached // self._chunk_tokens)
        if not self._is_race:
            await router.flush()

    async def _end(self, request: Request, placed: Placement, router: Router) -> None:
        self.workers[placed.chosen.replica].pinned_tokens -= request.tokens
        router.release(placed)
        if not self._is_race:
            await router.flush()

    async def _beat(self) -> None:
        beats = [self._heartbeat(name, worker) for name, worker in self.workers.items()]
        await asyncio.gather(*(self._registry.beat(POOL, beat) for beat in beats))
        self._at(self.now_ms + self._beat_ms, self._beat)

    def _heartbeat(self, name: str, worker: Worker) -> Heartbeat:
        return Heartbeat(
            replica=name,
            incarnation="1",
            url=f"http://{name}",
            model=POOL,
            state=ReplicaState.READY,
            capacity_tokens=worker.capacity_chunks * self._chunk_tokens,
            pinned_tokens=worker.pinned_tokens,
            cached_tokens=max(0, len(worker.cache) * self._chunk_tokens - worker.pinned_tokens),
            prefill_tokens_per_s=worker.prefill_per_s,
            decode_tokens_per_s=1_000.0,
            release_tokens_per_s=worker.prefill_per_s,
            bytes_per_token=CHUNK_BYTES / self._chunk_tokens,
        )
