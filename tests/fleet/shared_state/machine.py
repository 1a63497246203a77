"""Routers that place, release, die, stand still and lose answers, on a Redis that loses keys and
whose clock jumps. After each run they have one renewal period; then Redis must agree with them.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from itertools import count
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from pando_fleet.placement.keeper import BEAT_S, SWEEPS, Keeper
from pando_fleet.placement.placer import Ask, NoReplica, Placement, Placer
from pando_fleet.records.loads import Loads
from pando_fleet.redis.client import FleetError, FleetUnavailable, RedisClient, connect
from pando_fleet.redis.layout.constants import KEY_BYTES, MENDED_MS
from pando_fleet.redis.wire import Wire
from pando_fleet.registry.registry import Registry
from tests.fleet.shared_state.book import CAPACITY_CHUNKS, KEYS, LEASES, LOADS, PARTS, PATHS, Book
from tests.fleet.shared_state.routers import BadLine, Router, router_of
from tests.fleet.world import BEAT, POOL

REPLICAS = ("a", "b")
LEASE_MS = 15_000
BEAT_MS = int(1000 * BEAT_S)
STEP_MS = 1_000  # between looks while a period passes: as a busy router does
PERIOD_MS = LEASE_MS // 3 + STEP_MS
JUMP_BACK_MS = 5_000
BOOK = ("", LEASES, PARTS, LOADS, KEYS.routers)
OTHERS = (KEYS.replicas, KEYS.terms, KEYS.queues, KEYS.tree("a", "1"), KEYS.tree("b", "1"))

Result = TypeVar("Result")


class SharedState(RuleBasedStateMachine):
    url = ""  # of an empty server

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_800_000_000_000
        self.jumped_back_ms = 0
        self.at_s = 0.0  # the routers' own clock, which never goes back
        self.loop = asyncio.new_event_loop()
        self.redis: RedisClient = connect(self.url)
        self.book = Book(self.redis)
        self.wire = self.run(self._wire())
        self.registry = Registry(self.redis, self.clock)
        self.routers: list[Router] = []
        self.dead: list[Router] = []
        self.numbers = count()
        self.is_intact = True  # no key and no write was lost since Redis agreed
        self.has_gaps = False  # a path was cut: what branches off stays
        self.run(self.redis.flushall())

    async def _wire(self) -> Wire:
        return Wire(self.redis)

    def run(self, what: Awaitable[Result]) -> Result:
        return self.loop.run_until_complete(what)

    def clock(self) -> int:
        return self.now_ms

    def start(self) -> Router:
        name, line = f"r{next(self.numbers)}", BadLine(self.wire)
        placer = Placer(line, POOL, self.clock, every_s=None)
        return Router(name, line, placer, Keeper(line, placer, POOL, name, self.clock))

    @initialize(counts=st.tuples(*[st.integers(1, 4)] * 3), beats=st.integers(0, 6))
    def begin(self, counts: tuple[int, ...], beats: int) -> None:
        self.routers = [self.start() for _ in counts]
        self.run(self.beat())
        for router, number in zip(self.routers, counts, strict=True):
            self.run(self._place(router, PATHS[-number], 100, number))
        self.run(self._pass_time(beats))

    async def beat(self) -> None:
        for name in REPLICAS:
            beat = replace(BEAT, replica=name, url=name, capacity_tokens=64 * CAPACITY_CHUNKS)
            await self.registry.beat(POOL, beat)

    def router(self, number: int) -> Router:
        return self.routers[number % len(self.routers)]

    def held(self, number: int) -> tuple[Router, Placement] | None:
        every = [
            (router, placement)
            for router in self.routers
            if not router.is_stopped
            for placement in router.holds.values()
        ]
        return every[number % len(every)] if every else None

    # What routers do

    @rule(
        number=st.integers(0, 2),
        path=st.sampled_from(PATHS),
        output=st.integers(0, 500),
        count=st.integers(1, 4),
    )
    def place(self, number: int, path: bytes, output: int, count: int) -> None:
        router = self.router(number)
        if not router.is_stopped:
            self.run(self._place(router, path, output, count))

    async def _place(self, router: Router, path: bytes, output: int, count: int) -> None:
        asks = [
            Ask(
                keys=path,
                prompt_tokens=64 * len(path) // KEY_BYTES + 7,
                output_tokens=output,
                lease=f"{router.name}-{next(self.numbers)}",
                lease_ms=LEASE_MS,
            )
            for _ in range(count)
        ]
        answers = await asyncio.gather(*map(router.placer.place, asks), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, Placement):
                router.holds[answer.lease] = answer
                router.waits[answer.lease] = True
            else:
                assert isinstance(answer, FleetUnavailable | NoReplica), answer
        router.is_known = await self._knows(router)

    @rule(number=st.integers(0, 50))
    def first_byte(self, number: int) -> None:
        if (found := self.held(number)) is not None:
            router, placement = found
            router.placer.prefilled(placement)
            router.waits[placement.lease] = False

    @rule(number=st.integers(0, 50))
    def release(self, number: int) -> None:
        if (found := self.held(number)) is not None:
            router, placement = found
            router.placer.release(placement)
            del router.holds[placement.lease], router.waits[placement.lease]

    @rule(number=st.integers(0, 50), path=st.sampled_from(PATHS), depth=st.integers(0, 3))
    def cut(self, number: int, path: bytes, depth: int) -> None:
        if (found := self.held(number)) is not None:
            router, placement = found
            router.placer.cut(placement, path, depth)
            self.has_gaps = True

    async def _write(self, router: Router) -> None:
        if router.line.fails:
            self.is_intact = False
        await router.placer.flush()

    @rule(number=st.integers(0, 2))
    def look(self, number: int) -> None:
        router = self.router(number)
        if not router.is_stopped:
            self.run(self._look(router))

    async def _look(self, router: Router) -> None:
        try:
            await router.keeper.look(self.at_s, LEASE_MS)
            router.is_known = await self._knows(router)
        except FleetError:
            assert router.line.fails
        await self._write(router)
        if router.looks_until_late:
            router.looks_until_late -= 1
            if not router.looks_until_late:
                await router.line.run_late()

    async def _knows(self, router: Router) -> bool:
        """If the book does not add up, any router's next look mends it and forgets all routers."""
        is_named = await self.redis.zscore(KEYS.routers, router.name) is not None
        return is_named and await self.book.adds_up()

    @rule(beats=st.integers(1, 12))
    def time_passes(self, beats: int) -> None:
        """Every router that is not stopped looks."""
        self.run(self._pass_time(beats))

    async def _pass_time(self, beats: int, ms: int = BEAT_MS) -> None:
        for _ in range(beats):
            self.now_ms += ms
            self.at_s += ms / 1000
            await self.beat()
            for router in self.routers:
                if not router.is_stopped:
                    await self._look(router)

    # What goes wrong

    @rule(key=st.sampled_from(BOOK) | st.sampled_from(OTHERS))
    def redis_loses(self, key: str) -> None:
        """All keys, or one."""
        if key in BOOK:
            self.is_intact = False
            for router in (*self.routers, *self.dead):
                router.is_known = False
        self.run(self.redis.delete(key) if key else self.redis.flushall())

    @rule(ms=st.sampled_from([-JUMP_BACK_MS, 2_000, 10_000, 120_000]))
    def clock_jumps(self, ms: int) -> None:
        self.now_ms += ms
        self.jumped_back_ms += max(0, -ms)

    @rule(seconds=st.integers(1, 20))
    def redis_stands_still(self, seconds: int) -> None:
        self.now_ms += 1000 * seconds
        self.at_s += seconds

    @rule(number=st.integers(0, 2))
    def router_dies(self, number: int) -> None:
        """Another one takes its place."""
        router = self.router(number)
        self.run(router.line.run_late())
        self.dead.append(router)
        self.routers[number % len(self.routers)] = self.start()

    @precondition(lambda self: sum(not router.is_stopped for router in self.routers) > 1)
    @rule(number=st.integers(0, 2))
    def router_stops(self, number: int) -> None:
        self.router(number).is_stopped = True

    @rule(number=st.integers(0, 2))
    def router_goes_on(self, number: int) -> None:
        self.router(number).is_stopped = False

    @rule(number=st.integers(0, 2), how=st.sampled_from(["late", "dropped"]))
    def answers_are_lost(self, number: int, how: str) -> None:
        self.router(number).line.fails = how

    @rule(number=st.integers(0, 2), looks=st.integers(0, SWEEPS - 1))
    def redis_answers_again(self, number: int, looks: int) -> None:
        """What was given up may run after the first looks."""
        router = self.router(number)
        router.line.fails, router.looks_until_late = "", looks
        if not looks:
            self.run(router.line.run_late())

    # What must hold

    @invariant()
    def sums_are_those_of_the_parts_where_nothing_was_lost(self) -> None:
        if self.is_intact:
            self.run(self.book.parts())

    def teardown(self) -> None:
        try:
            if self.routers:
                self.run(self._period())
        finally:
            self.run(self._close())
            self.loop.close()

    async def _close(self) -> None:
        await self.wire.aclose()
        await self.redis.aclose()

    async def _period(self) -> None:
        """Redis answers all routers for one renewal period."""
        for router in self.routers:
            router.line.fails = ""
            if await router.line.run_late() and router.is_stopped:
                router.is_known = False  # what it left behind came after its end
            if not router.is_stopped:  # an idle router renews nothing
                await self._place(router, PATHS[0], 10, 1)
        await self._pass_time(PERIOD_MS // STEP_MS, STEP_MS)
        if await self._holds():
            return
        # What Redis no longer knows to be a dead router's ends by its time.
        ends_ms = MENDED_MS + LEASE_MS + self.jumped_back_ms
        await self._pass_time(ends_ms // STEP_MS, STEP_MS)
        await Loads(self.redis, POOL, self.clock).read()
        assert await self._holds(), await self.book.parts()

    async def _holds(self) -> bool:
        """Whether Redis has the living routers' leases, which must be right, and no others."""
        parts = await self.book.parts()
        alive = {router.name for router in self.routers if not router.is_stopped}
        for router in self.routers:
            if not router.is_stopped:
                mine = {
                    lease: part for lease, part in parts.items() if router_of(lease) == router.name
                }
                assert mine == router.parts()
        if not self.has_gaps:
            for name in REPLICAS:
                await self.book.tree_is_whole(name)
        others = {router_of(lease) for lease in parts} - alive
        assert not [
            router.name
            for router in (*self.routers, *self.dead)
            if router.name in others and router.is_known
        ]
        return not others
