"""The shared state against a brute-force model: what routers know is what Redis holds.

Hypothesis drives routers that place, release, die, stand still and lose answers, on a Redis that
loses keys and whose clock jumps. Whatever happened, one renewal period later Redis has the leases
that the living routers hold, whole, and nothing else that does not end by itself; sums are those of
the parts, and trees have no gap. What lost no key agrees at any time.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pando_fleet.placement.keeper import BEAT_S, SWEEPS, Keeper
from pando_fleet.placement.placer import Ask, NoReplica, Placement, Placer
from pando_fleet.placement.prefix import chunk_keys
from pando_fleet.records.loads import Loads
from pando_fleet.redis.client import FleetError, FleetUnavailable, RedisClient, connect
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.constants import CHUNK_BYTES, KEY_BYTES, MENDED_MS
from pando_fleet.redis.layout.rows import LOAD, PART, Part
from pando_fleet.redis.wire import Wire
from pando_fleet.redis.wire.call import Answer
from pando_fleet.registry.registry import Registry
from tests.fleet.redis_server import RedisServer
from tests.fleet.world import BEAT, POOL

KEYS = PoolKeys(POOL)
LEASES, PARTS, LOADS = KEYS.leases
REPLICAS = ("a", "b")
LEASE_MS = 15_000
BEAT_MS = int(1000 * BEAT_S)
STEP_MS = 1_000  # between looks while a period passes: as a busy router does
PERIOD_MS = LEASE_MS // 3 + STEP_MS
JUMP_BACK_MS = 5_000
BOOK = ("", LEASES, PARTS, LOADS, KEYS.routers)
OTHERS = (KEYS.replicas, KEYS.terms, KEYS.queues, KEYS.tree("a", "1"), KEYS.tree("b", "1"))
CAPACITY_CHUNKS = 10

Result = TypeVar("Result")


def paths() -> tuple[list[bytes], dict[bytes, bytes]]:
    """Prompts that share beginnings, and each of their chunks' parents."""
    found, parents = [], {}
    for number in range(1, 2**5):
        text = b"".join(bit.encode() * CHUNK_BYTES for bit in f"{number:b}")
        keys = chunk_keys(text, seed=0)
        found.append(keys)
        for at in range(KEY_BYTES, len(keys), KEY_BYTES):
            parents[keys[at : at + KEY_BYTES]] = keys[at - KEY_BYTES : at]
    return found, parents


PATHS, PARENTS = paths()


class BadLine:
    """A line to Redis that fails as it is told to: a call is `dropped`, or runs `late`, when its
    caller has given up."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.fails = ""
        self._late: list[tuple[str, bytes, bytes]] = []

    def send(self, key: str, packed: bytes, answer: Answer, script: bytes = b"") -> None:
        if not self.fails:
            self._wire.send(key, packed, answer, script)
            return
        if self.fails == "late":
            self._late.append((key, packed, script))
        error = FleetUnavailable("no answer in time")
        asyncio.get_running_loop().call_soon(answer, error)

    def flush(self) -> None:
        self._wire.flush()

    async def run_late(self) -> int:
        """The calls that were given up reach Redis now, in their order; how many."""
        late, self._late = self._late, []
        loop = asyncio.get_running_loop()
        for key, packed, script in late:
            done: asyncio.Future[object] = loop.create_future()
            self._wire.send(key, packed, done.set_result, script)
            await done
        return len(late)


@dataclass
class Router:
    name: str
    line: BadLine
    placer: Placer
    keeper: Keeper
    holds: dict[str, Placement] = field(default_factory=dict)
    waits: dict[str, bool] = field(default_factory=dict)
    is_stopped: bool = False
    is_known: bool = False  # to Redis, and stays so: others see where it falls silent
    looks_until_late: int = 0  # until the calls that were given up run


class SharedState(RuleBasedStateMachine):
    url = ""  # of an empty server

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_800_000_000_000
        self.jumped_back_ms = 0
        self.at_s = 0.0  # the routers' own clock, which never goes back
        self.loop = asyncio.new_event_loop()
        self.redis: RedisClient = connect(self.url)
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
        """What does not add up is mended at anybody's next look, which forgets all routers."""
        is_named = await self.redis.zscore(KEYS.routers, router.name) is not None
        return is_named and await self._adds_up()

    async def _adds_up(self) -> bool:
        loads = (await self._hash(LOADS)).values()
        requests = sum(LOAD.unpack_row(row).requests for row in loads)
        ends, parts = await self.redis.zcard(LEASES), await self.redis.hlen(PARTS)
        return bool(requests == ends == parts)

    @rule(beats=st.integers(1, 12))
    def time_passes(self, beats: int) -> None:
        """Everybody who is not stopped looks."""
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
            self.run(self._sums_agree())

    async def _sums_agree(self) -> dict[str, Part]:
        """The parts in Redis."""
        parts = await self._hash(PARTS)
        sums: dict[str, list[float]] = {}
        found = {lease: PART.unpack_row(row) for lease, row in parts.items()}
        for part in found.values():
            before = sums.get(part.owner, [0.0] * 4)
            more = (part.work, part.room, part.waiting, 1.0)
            sums[part.owner] = [a + b for a, b in zip(before, more, strict=True)]
        loads = {owner: LOAD.unpack_row(row) for owner, row in (await self._hash(LOADS)).items()}
        assert loads.keys() == sums.keys()
        for owner, load in loads.items():
            assert list(load) == pytest.approx(sums[owner], abs=1e-6)
        leases: Any = await self.redis.zrange(LEASES, 0, -1)
        assert sorted(lease.decode() for lease in leases) == sorted(found)
        return found

    async def _hash(self, key: str) -> dict[str, bytes]:
        rows: Any = await self.redis.hgetall(key)
        return {name.decode(): row for name, row in rows.items()}

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
        """Redis answers everybody for one renewal period."""
        for router in self.routers:
            router.line.fails = ""
            if await router.line.run_late() and router.is_stopped:
                router.is_known = False  # what it left behind came after its end
            if not router.is_stopped:  # an idle one would look after nobody
                await self._place(router, PATHS[0], 10, 1)
        await self._pass_time(PERIOD_MS // STEP_MS, STEP_MS)
        if await self._holds():
            return
        # What Redis no longer knows to be a dead router's ends by its time.
        ends_ms = MENDED_MS + LEASE_MS + self.jumped_back_ms
        await self._pass_time(ends_ms // STEP_MS, STEP_MS)
        await Loads(self.redis, POOL, self.clock).read()
        assert await self._holds(), await self._hash(PARTS)

    async def _holds(self) -> bool:
        """Whether Redis has the living routers' leases, which must be right, and no others."""
        parts = await self._sums_agree()
        for router in self.routers:
            if router.is_stopped:
                continue
            mine = {
                lease: part for lease, part in parts.items() if _router_of(lease) == router.name
            }
            wanted = {}
            for lease, placement in router.holds.items():
                chosen, is_waiting = placement.chosen, router.waits[lease]
                owner = f"{chosen.incarnation}:{chosen.replica}"
                whole = Part(placement.chosen.work, placement.chosen.room, 1.0, owner)
                wanted[lease] = whole if is_waiting else Part(0.0, 0.0, 0.0, owner)
            assert mine == wanted
        await self._has_no_gap()
        alive = {router.name for router in self.routers if not router.is_stopped}
        others = {_router_of(lease) for lease in parts} - alive
        assert not [
            router.name
            for router in (*self.routers, *self.dead)
            if router.name in others and router.is_known
        ]
        return not others

    async def _has_no_gap(self) -> None:
        if self.has_gaps:
            return
        for name in REPLICAS:
            held = set(await self.redis.zrange(KEYS.tree(name, "1"), 0, -1))
            assert len(held) <= CAPACITY_CHUNKS
            assert not [key for key in held if key in PARENTS and PARENTS[key] not in held]


def _router_of(lease: str) -> str:
    return lease.partition("-")[0]


QUICK = settings(
    max_examples=20, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
LONG = settings(
    QUICK,
    max_examples=150,
    stateful_step_count=50,
    phases=(Phase.reuse, Phase.generate),  # shrinking takes many minutes
)


def machine_on(server: RedisServer) -> type[SharedState]:
    class OnServer(SharedState):
        url = server.url

    return OnServer


def run_on(server: RedisServer, budget: settings) -> None:
    run_state_machine_as_test(machine_on(server), settings=budget)


@pytest.mark.parametrize("lost", [None, *BOOK])
def test_router_that_dies_before_anyone_mends_what_redis_lost(
    request: pytest.FixtureRequest, redis_url: str, lost: str | None
) -> None:
    """Its leases end by their time; where nothing was lost the others end them."""
    server = request.node.callspec.params["redis_url"]
    state = machine_on(request.getfixturevalue(server))()
    try:
        state.begin(counts=(1, 1, 1), beats=0)
        if lost is not None:
            state.redis_loses(key=lost)
        state.place(count=1, number=0, output=0, path=PATHS[0])
        state.router_dies(number=0)
        assert state.dead[0].is_known == (lost is None)
    finally:
        state.teardown()


def test_redis_holds_what_routers_know(request: pytest.FixtureRequest, redis_url: str) -> None:
    server = request.node.callspec.params["redis_url"]
    run_on(request.getfixturevalue(server), QUICK)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_redis_holds_what_routers_know_after_anything(
    request: pytest.FixtureRequest, redis_url: str
) -> None:
    server = request.node.callspec.params["redis_url"]
    run_on(request.getfixturevalue(server), LONG)
