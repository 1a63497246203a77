"""Routers' heartbeats, whole renewals and repairs: Redis holds what the living routers know."""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pando_fleet.placement.keeper import BEAT_S, IDLE_S, SWEEPS, Keeper, Seen
from pando_fleet.placement.placer import Placement, Placer
from pando_fleet.records.loads import Loads
from pando_fleet.records.queues import Queues
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.calls import Reap
from pando_fleet.redis.layout.constants import (
    MENDED_MS,
    RETENTION_MS,
    ROUTER_SILENCE_MS,
    SHARED_SILENCE_MS,
)
from pando_fleet.redis.layout.rows import PART
from pando_fleet.redis.scripts import time_arg
from pando_fleet.redis.wire import Wire, WireScript
from pando_fleet.redis.wire.call import Answer, Reply
from tests.fleet.world import POOL, World

LEASE_MS = 30_000
BEAT_MS = int(1000 * BEAT_S)
KEYS = PoolKeys(POOL)
LEASES, PARTS, LOADS = KEYS.leases


class SlowLine:
    """Gives the answer to ZSCAN only after `meanwhile`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.flush = wire.flush
        self.meanwhile: Callable[[], None] = lambda: None

    def send(self, key: str, packed: bytes, answer: Answer, script: bytes = b"") -> None:
        def slow_answer(reply: Reply) -> None:
            self.meanwhile()
            answer(reply)

        self._wire.send(key, packed, slow_answer if b"ZSCAN" in packed else answer, script)


class Router:
    """One router of a world whose time the test moves."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._world = world
        self.line = SlowLine(world.wire)
        self.placer = Placer(self.line, POOL, world.clock, every_s=None)
        self.keeper = Keeper(self.line, self.placer, POOL, name, world.clock)
        self._number = 0

    async def place(self, **fields: Any) -> Placement:
        self._number += 1
        lease = f"{self.name}-{self._number}"
        ask = self._world.ask(lease=lease, lease_ms=LEASE_MS, **fields)
        placed = await self.placer.place(ask)
        await self.placer.flush()
        return placed

    async def look(self) -> Seen:
        seen = await self.keeper.look(self._world.now_ms / 1000, LEASE_MS)
        await self.placer.flush()
        return seen


async def pass_time(world: World, ms: int, *routers: Router) -> None:
    """In which these routers live, and replica "a"."""
    for _ in range(0, ms, BEAT_MS):
        world.now_ms += BEAT_MS
        await world.beat("a")
        for router in routers:
            await router.look()


async def truth(world: World) -> tuple[float, float, float]:
    """Requests, waiting ones and their work at replica "a", as placement sees them."""
    terms = (await world.terms())["a"]
    return terms.outstanding, terms.queue, terms.backlog_tokens


async def lost_everything(world: World) -> None:
    await world.redis.flushall()


async def jumped_ahead(world: World) -> None:
    world.now_ms += 120_000


async def jumped_back(world: World) -> None:
    world.now_ms -= 120_000


def lost(*keys: str) -> Callable[[World], Awaitable[None]]:
    async def lose(world: World) -> None:
        await world.redis.delete(*keys)

    lose.__name__ = "lost " + ", ".join(key.rpartition(":")[2] for key in keys)
    return lose


@pytest.mark.parametrize(
    "happens",
    [
        lost_everything,
        jumped_ahead,
        jumped_back,
        lost(LEASES),
        lost(PARTS),
        lost(LOADS),
        lost(KEYS.routers),
        lost(LEASES, PARTS),
        lost(LEASES, LOADS),
        lost(PARTS, LOADS),
    ],
    ids=lambda happens: happens.__name__,
)
@pytest.mark.parametrize("placed_after", [False, True])
async def test_what_redis_lost_is_there_again_a_beat_or_two_later(
    world: World, happens: Callable[[World], Awaitable[None]], placed_after: bool
) -> None:
    await world.beat("a")
    routers = [Router(world, "r1"), Router(world, "r2")]
    held = [await router.place(prompt_tokens=100) for router in routers for _ in range(8)]
    await pass_time(world, 1_000, *routers)
    for router, ended, prefilled in zip(routers, held[::8], held[1::8], strict=True):
        router.placer.release(ended)
        router.placer.prefilled(prefilled)
        await router.placer.flush()
    await happens(world)
    await world.beat("a")
    if placed_after:
        await routers[0].place(prompt_tokens=100)
    await pass_time(world, 2 * BEAT_MS, *routers)
    new = int(placed_after)
    assert await truth(world) == (14 + new, 12 + new, 1200 + 100 * new)
    for router in routers:
        for placement in list(router.placer._open.values()):
            router.placer.release(placement)
        await router.placer.flush()
    assert not any([await world.redis.exists(key) for key in KEYS.leases])


async def test_while_one_of_the_keys_is_lost_the_bound_holds_or_is_right_a_beat_later(
    world: World,
) -> None:
    """Without leases, but with parts, nothing is forgotten: no moment with a hole."""
    await world.beat("a")
    router = Router(world, "r1")
    for _ in range(5):
        await router.place()
    await router.look()
    await world.redis.delete(LEASES)
    assert (await truth(world))[0] == 5
    await router.look()
    assert await world.redis.zcard(LEASES) == 5
    await pass_time(world, MENDED_MS + LEASE_MS, router)
    assert (await truth(world))[0] == 5


async def test_a_lease_without_an_end_and_without_a_router_ends_all_the_same(world: World) -> None:
    await world.beat("a")
    await world.place()  # of a router that sends no heartbeats
    await world.redis.delete(LEASES)
    loads = Loads(world.redis, POOL, world.clock)
    assert await loads.read() == {"a": 1}
    world.now_ms += MENDED_MS
    assert await loads.read() == {}
    assert not any([await world.redis.exists(key) for key in KEYS.leases])


async def test_a_renewal_that_was_queued_before_the_release_brings_no_lease_back(
    world: World,
) -> None:
    await world.beat("a")
    router = Router(world, "r1")
    placed = await router.place()
    await world.redis.flushall()
    await world.beat("a")
    router.placer.renew(world.now_ms / 1000, LEASE_MS, every=True)
    router.placer.release(placed)
    await router.placer.flush()
    await pass_time(world, 1_000, router)
    assert await world.redis.zcard(LEASES) == 0


async def test_leases_are_renewed_when_a_third_of_their_time_is_over_and_not_before(
    world: World,
) -> None:
    await world.beat("a")
    router = Router(world, "r1")
    await router.look()
    await router.place()
    end_ms = world.now_ms + LEASE_MS
    await router.look()  # it is new to Redis
    await pass_time(world, LEASE_MS // 3 - BEAT_MS, router)
    assert await world.redis.zscore(LEASES, "r1-1") == end_ms
    await pass_time(world, BEAT_MS, router)
    assert await world.redis.zscore(LEASES, "r1-1") == world.now_ms + LEASE_MS


async def test_a_dead_routers_places_are_free_within_five_seconds(world: World) -> None:
    await world.beat("a")
    dead, alive = Router(world, "r1"), Router(world, "r2")
    for _ in range(300):  # more than one call looks at
        await dead.place()
    await alive.place()
    await Queues(world.redis, world.clock).report(POOL, "r1", 1, 0, 10)
    await pass_time(world, 1_000, dead, alive)
    await pass_time(world, ROUTER_SILENCE_MS, alive)
    assert (await truth(world))[0] == 301
    await pass_time(world, BEAT_MS, alive)
    assert (await truth(world))[0] == 1
    assert await world.redis.zrange(KEYS.routers, 0, -1) == [b"r2"]
    assert not await world.redis.exists(KEYS.queues), "nobody waits there any more"


@pytest.mark.parametrize("had_left", [False, True])
async def test_so_are_those_of_one_that_dies_right_after_its_first_placement(
    world: World, had_left: bool
) -> None:
    await world.beat("a")
    dead, alive = Router(world, "r1"), Router(world, "r2")
    await alive.place()
    if had_left:
        dead.placer.release(await dead.place())
        await pass_time(world, int(1000 * IDLE_S) + (SWEEPS + 1) * BEAT_MS, dead, alive)
        assert await world.redis.zrange(KEYS.routers, 0, -1) == [b"r2"]
    else:
        await pass_time(world, 1_000, alive)
    await dead.place()
    await pass_time(world, ROUTER_SILENCE_MS + BEAT_MS, alive)
    assert (await truth(world))[0] == 1


async def test_a_router_that_places_while_it_leaves_is_known(world: World) -> None:
    await world.beat("a")
    router = Router(world, "r1")
    router.placer.release(await router.place())
    await router.look()
    await asyncio.gather(router.keeper.leave(), router.place())
    assert await world.redis.zrange(KEYS.routers, 0, -1) == [b"r1"]


async def test_a_router_that_was_only_stopped_has_its_leases_again_with_its_next_beat(
    world: World,
) -> None:
    await world.beat("a")
    stopped, alive = Router(world, "r1"), Router(world, "r2")
    first, _ = await stopped.place(prompt_tokens=100), await stopped.place(prompt_tokens=100)
    await alive.place(prompt_tokens=100)
    await pass_time(world, 1_000, stopped, alive)
    stopped.placer.prefilled(first)
    await pass_time(world, LEASE_MS, alive)
    assert await truth(world) == (1, 1, 100)
    assert (await stopped.look()).renewed
    assert await truth(world) == (3, 2, 200)
    await pass_time(world, LEASE_MS, stopped, alive)
    assert await truth(world) == (3, 2, 200)


@pytest.mark.parametrize("seconds", [2, 10, 25])
async def test_nobody_dies_of_a_silence_that_all_share(world: World, seconds: int) -> None:
    await world.beat("a")
    dying, alive = Router(world, "r1"), Router(world, "r2")
    await dying.place()
    await alive.place()
    await pass_time(world, 1_000, dying, alive)
    await pass_time(world, 1000 * seconds)  # Redis answers nobody
    for router in (alive, dying, alive):
        await router.look()
        assert (await truth(world))[0] == 2
    await pass_time(world, 1_000, dying, alive)
    assert (await truth(world))[0] == 2
    await pass_time(world, ROUTER_SILENCE_MS + BEAT_MS, alive)  # and who dies then is dead
    assert (await truth(world))[0] == 1


async def test_leases_of_the_release_before_are_neither_reaped_nor_lost(world: World) -> None:
    """Their routers send no heartbeats, have no names, and give the keys a TTL."""
    await world.beat("a")
    old, router = "0123456789abcdef0123456789abcdef-7", Router(world, "r1")
    part = struct.pack(">3d", 500.0, 600.0, 1.0) + b"1:a\0\x01"
    await router.place(prompt_tokens=500, output_tokens=100)
    assert await world.redis.hget(PARTS, "r1-1") == part  # as they read it
    await world.redis.zadd(LEASES, {old: world.now_ms + LEASE_MS})
    await world.redis.hset(PARTS, old, part)
    sums = struct.pack(">4d", 1000.0, 1200.0, 2.0, 2.0) + b"\x01"
    await world.redis.hset(LOADS, "1:a", sums)
    for key in KEYS.leases:
        await world.redis.pexpire(key, 60_000)
    await pass_time(world, LEASE_MS - BEAT_MS, router)
    assert await truth(world) == (2, 2, 1000)
    for key in (*KEYS.leases, KEYS.routers):
        assert await world.redis.pttl(key) == -1
    await pass_time(world, BEAT_MS, router)
    assert await truth(world) == (1, 1, 500)
    assert PART.unpack_row(part).owner == "1:a"


async def test_leases_that_nobody_holds_are_found_though_a_lost_call_runs_late(
    world: World,
) -> None:
    await world.beat("a")
    router = Router(world, "r1")
    await router.place()
    await router.look()
    await pass_time(world, SWEEPS * BEAT_MS, router)
    router.placer.in_doubt = True  # a placement's answer was lost
    await router.look()
    stranger = Placer(world.wire, POOL, world.clock, every_s=None)
    await stranger.place(world.ask(lease="r1-99", lease_ms=LEASE_MS))  # and it runs only now
    assert (await truth(world))[0] == 2
    assert (await router.look()).unknown == 1
    assert (await truth(world))[0] == 1


async def test_what_a_router_releases_while_redis_lists_its_leases_is_no_lease_that_nobody_held(
    world: World,
) -> None:
    await world.beat("a")
    router = Router(world, "r1")
    held = [await router.place() for _ in range(32)]

    def release() -> None:
        for placement in held:
            router.placer.release(placement)

    router.line.meanwhile = release
    assert [(await router.look()).unknown for _ in range(SWEEPS)] == [0] * SWEEPS
    assert await world.redis.zcard(LEASES) == 0


async def test_an_idle_router_leaves_and_is_not_taken_for_dead(world: World) -> None:
    await world.beat("a")
    idle, alive = Router(world, "r1"), Router(world, "r2")
    placed = await idle.place()
    await alive.place()
    await pass_time(world, 1_000, idle, alive)
    idle.placer.release(placed)
    await pass_time(world, int(1000 * IDLE_S) + 2 * BEAT_MS, idle, alive)
    assert await world.redis.zrange(KEYS.routers, 0, -1) == [b"r2"]
    assert await idle.look() == Seen()


async def test_repairs_of_many_leases_are_whole(world: World) -> None:
    """Leases beyond what one call looks at, in a sorted set that is no list any more."""
    await world.beat("a")
    router = Router(world, "r1")
    part = struct.pack(">3d", 1, 1, 1) + b"1:a\0\x01"
    async with world.redis.pipeline() as pipe:
        for number in range(5_000):
            pipe.zadd(LEASES, {f"r1-lost{number}": world.now_ms + LEASE_MS})
            pipe.hset(PARTS, f"r1-lost{number}", part)
        await pipe.execute()
    await router.place()
    assert (await router.look()).unknown == 5_000
    assert (await truth(world))[0] == 1


async def test_the_last_leases_of_a_pool_that_nobody_serves_leave_redis(world: World) -> None:
    await world.beat("a")
    router = Router(world, "r1")
    await router.place()
    await Queues(world.redis, world.clock).report(POOL, "r1", 1, 0, 10)
    await router.look()
    world.now_ms += RETENTION_MS - LEASE_MS // 2
    await router.look()  # a stream that outlasts its pool
    world.now_ms += LEASE_MS // 2
    assert await world.registry.pools() == []
    assert await world.redis.zcard(LEASES) == 1
    world.now_ms += LEASE_MS
    assert await world.registry.pools() == []
    assert await world.redis.keys() == []


async def test_a_silent_pool_is_kept_until_a_lease_whose_end_redis_lost_has_ended(
    world: World,
) -> None:
    await world.beat("a")
    await Router(world, "r1").place()
    await world.redis.delete(LEASES)
    world.now_ms += RETENTION_MS
    assert await world.registry.pools() == []
    assert await world.redis.hlen(PARTS) == 1
    world.now_ms += MENDED_MS
    assert await world.registry.pools() == []
    assert await world.redis.keys() == []


async def test_a_renewal_puts_right_what_a_lost_write_left_of_a_lease(world: World) -> None:
    await world.beat("a")
    router = Router(world, "r1")
    first = await router.place(prompt_tokens=100)
    await router.place(prompt_tokens=100)
    before = await world.redis.hget(PARTS, "r1-1"), await world.redis.hget(LOADS, "1:a")
    router.placer.prefilled(first)
    await router.placer.flush()
    for key, name, row in zip((PARTS, LOADS), ("r1-1", "1:a"), before, strict=True):
        assert row is not None
        await world.redis.hset(key, name, row)
    assert await truth(world) == (2, 2, 200)
    router.placer.renew(world.now_ms / 1000, LEASE_MS, every=True)
    await router.placer.flush()
    assert await truth(world) == (2, 1, 100)


@pytest.mark.parametrize(
    ("silence_ms", "shared_ms"),
    [(SHARED_SILENCE_MS, 0), (SHARED_SILENCE_MS + 1, SHARED_SILENCE_MS + 1), (-1, -1)],
)
async def test_a_silence_of_all_beyond_its_bound_and_a_clock_set_back_move_every_beat(
    world: World, silence_ms: int, shared_ms: int
) -> None:
    await world.beat("a")
    silent, alive = Router(world, "r1"), Router(world, "r2")
    for router in (silent, alive):
        await router.place()
        await router.look()
    heard_ms = world.now_ms
    world.now_ms += silence_ms
    await alive.look()
    assert await world.redis.zscore(KEYS.routers, "r1") == heard_ms + shared_ms


async def test_a_router_that_was_heard_within_the_time_is_not_reaped(world: World) -> None:
    """It may have spoken after another one had found it dead."""
    await world.beat("a")
    router = Router(world, "r1")
    await router.place()
    await router.look()
    reap = WireScript(world.wire, Reap)

    async def reaped() -> object:
        return await reap(
            Reap(
                routers=KEYS.routers,
                leases=LEASES,
                parts=PARTS,
                loads=LOADS,
                queues=KEYS.queues,
                now=time_arg(world.clock),
                router="r1",
                cursor="0",
            )
        )

    assert await reaped() is None
    world.now_ms += ROUTER_SILENCE_MS
    assert await reaped() is None
    assert await world.redis.zcard(LEASES) == 1
    world.now_ms += 1
    assert await reaped() == [b"0", 1]
    assert await world.redis.zcard(LEASES) == 0
    assert await reaped() is None, "and once is enough"
