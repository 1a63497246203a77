"""A dead router leaves no leases; one that is only silent, stopped or idle keeps its own."""

import asyncio
import struct

import pytest

from pando_fleet.placement.keeper import IDLE_S, SWEEPS, Seen
from pando_fleet.records.queues import Queues
from pando_fleet.redis.layout.calls import Reap
from pando_fleet.redis.layout.constants import ROUTER_SILENCE_MS, SHARED_SILENCE_MS
from pando_fleet.redis.layout.rows import PART
from pando_fleet.redis.scripts import time_arg
from pando_fleet.redis.wire import WireScript
from tests.fleet.placement.routers import (
    BEAT_MS,
    KEYS,
    LEASE_MS,
    LEASES,
    LOADS,
    PARTS,
    Router,
    pass_time,
    truth,
)
from tests.fleet.world import POOL, World


async def test_a_dead_routers_places_are_free_within_five_seconds(world: World) -> None:
    await world.beat("a")
    dead, alive = Router(world, "r1"), Router(world, "r2")
    for _ in range(300):  # more than one call checks
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


async def test_a_router_that_was_heard_within_the_time_is_not_reaped(world: World) -> None:
    """Its heartbeat may arrive after another router had found it dead."""
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


async def test_a_router_that_places_while_it_leaves_is_known(world: World) -> None:
    await world.beat("a")
    router = Router(world, "r1")
    router.placer.release(await router.place())
    await router.look()
    await asyncio.gather(router.keeper.leave(), router.place())
    assert await world.redis.zrange(KEYS.routers, 0, -1) == [b"r1"]


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
    await pass_time(world, 1000 * seconds)  # Redis answers no router
    for router in (alive, dying, alive):
        await router.look()
        assert (await truth(world))[0] == 2
    await pass_time(world, 1_000, dying, alive)
    assert (await truth(world))[0] == 2
    await pass_time(world, ROUTER_SILENCE_MS + BEAT_MS, alive)  # one that dies then is found
    assert (await truth(world))[0] == 1


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


async def test_leases_of_the_release_before_are_neither_reaped_nor_lost(world: World) -> None:
    """Routers of that release send no heartbeats, have no names, and give the keys a TTL."""
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
