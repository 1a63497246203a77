"""Routers renew complete leases, restore what Redis lost, and release leases without a holder."""

import struct
from collections.abc import Awaitable, Callable

import pytest

from pando_fleet.placement.keeper import SWEEPS
from pando_fleet.placement.placer import Placer
from pando_fleet.records.loads import Loads
from pando_fleet.records.queues import Queues
from pando_fleet.redis.layout.constants import MENDED_MS, RETENTION_MS
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
    """Without leases, but with parts, nothing is forgotten at any moment."""
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


async def test_repairs_of_many_leases_are_whole(world: World) -> None:
    """More leases than one call checks, in a sorted set that is no longer encoded as a list."""
    await world.beat("a")
    router = Router(world, "r1")
    part = struct.pack(">3d", 1, 1, 1) + b"1:a\0\x01"
    async with world.redis.pipeline() as pipe:
        for number in range(5_000):
            pipe.zadd(LEASES, {f"r1-lost{number}": world.now_ms + LEASE_MS})
            pipe.hset(PARTS, f"r1-lost{number}", part)
        await pipe.execute()
    await router.place()
    repaired = 0
    while seen := (await router.look()).unknown:  # for a second at most; the next look resumes
        repaired += seen
    assert repaired == 5_000
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
