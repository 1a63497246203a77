"""Writes that no answer waits for: ordered, batched, bounded, and counted if they are lost."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from pando_fleet.placement import settling
from pando_fleet.placement.placer import Placer, PoolFull
from pando_fleet.redis.client import FleetUnavailable, RedisClient, connect
from pando_fleet.redis.wire import Wire
from pando_fleet.registry.registry import Registry
from tests.fleet.redis_server import RedisServer
from tests.fleet.world import BEAT, POOL, World, path
from tests.waiting import PATIENCE_S

StartValkey = Callable[..., RedisServer]
BEAT_A = replace(BEAT, replica="a")


@asynccontextmanager
async def _placer(redis: RedisClient, lost: dict[str, int]) -> AsyncIterator[Placer]:
    def failed(reason: str, count: int) -> None:
        lost[reason] = lost.get(reason, 0) + count

    wire = Wire(redis)
    try:
        yield Placer(wire, POOL, failed=failed)
    finally:
        await wire.aclose()


async def test_what_follows_a_placement_is_written_without_being_asked_for(world: World) -> None:
    lost: dict[str, int] = {}
    async with _placer(world.redis, lost) as placer:
        await Registry(world.redis).beat(POOL, BEAT_A)
        placed = await placer.place(world.ask(path("hello", 20)))
        placer.release(placed)
        deadline = time.monotonic() + PATIENCE_S
        while await world.redis.exists(f"pando:{{{POOL}}}:leases"):
            assert time.monotonic() < deadline, "the lease was never released"
            await asyncio.sleep(0.001)
        assert await world.tree.match("a", "1", path("hello", 20)) == 20
    assert not lost


async def test_a_placement_sees_what_the_one_before_it_left_even_of_a_server_without_scripts(
    world: World,
) -> None:
    lost: dict[str, int] = {}
    for _ in range(5):
        await world.redis.flushall()
        await world.redis.script_flush()
        await Registry(world.redis).beat(POOL, BEAT_A)
        async with _placer(world.redis, lost) as placer:
            first = await placer.place(world.ask(path("hello", 20)))
            placer.release(first)
            second = await placer.place(world.ask(path("hello", 20)))
            assert (second.chosen.matched_chunks, second.chosen.outstanding) == (20, 0)
            await placer.settle(PATIENCE_S)
    assert not lost


async def test_asks_of_one_turn_of_the_loop_are_one_call_and_so_is_what_follows(
    world: World,
) -> None:
    await world.beat("a", "b")
    await world.place(path("hello", 1))  # the scripts are loaded
    before = await world.redis.info("commandstats")
    placed = await asyncio.gather(*(world.placer.place(world.ask()) for _ in range(10)))
    for placement in placed:
        world.placer.prefilled(placement)
        world.placer.release(placement)
    await world.placer.flush()
    after = await world.redis.info("commandstats")
    calls = [stats["cmdstat_evalsha"]["calls"] for stats in (before, after)]
    assert calls[1] - calls[0] == 2
    assert sorted(p.chosen.replica for p in placed) == ["a"] * 5 + ["b"] * 5


async def test_operations_of_a_lease_keep_their_order_over_many_calls(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "MAX_OPERATIONS", 3)
    await world.beat("a")
    keys = path("hello", 20)
    for depth in range(20):
        placed = await world.placer.place(world.ask(keys))  # its touch is queued, then the cut
        world.placer.cut(placed, keys, depth)
    await world.placer.flush()
    assert await world.tree.match("a", "1", keys) == 19


async def test_a_caller_that_gave_up_while_it_was_placed_leaves_no_lease(world: World) -> None:
    await world.beat("a")
    waiting = asyncio.ensure_future(world.placer.place(world.ask()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # sent
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await world.placer.place(world.ask())  # answered after the other
    await world.placer.flush()
    assert (await world.terms())["a"].outstanding == 1


async def test_each_ask_of_a_call_that_fails_gets_an_error_of_its_own(
    start_valkey: StartValkey, world: World
) -> None:
    server = start_valkey()
    redis = connect(server.url)
    server.stop()
    async with _placer(redis, {}) as placer:
        asked = [asyncio.ensure_future(placer.place(world.ask())) for _ in range(3)]
        await asyncio.sleep(0)  # sent
        asked[0].cancel()
        gave_up, *failed = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(gave_up, asyncio.CancelledError)
    assert [type(error) for error in failed] == [FleetUnavailable] * 2
    assert failed[0] is not failed[1]
    await redis.aclose()


async def test_settling_releases_what_nobody_released(world: World) -> None:
    await world.beat("a")
    async with _placer(world.redis, {}) as placer:
        await placer.place(world.ask())
        await placer.place(world.ask())
        await placer.settle(PATIENCE_S)
        assert placer.open == 0
    assert (await world.terms())["a"].outstanding == 0


async def test_writes_that_redis_does_not_take_are_counted_and_later_ones_arrive(
    start_valkey: StartValkey, world: World
) -> None:
    server, lost = start_valkey(), dict[str, int]()
    redis = connect(server.url)
    async with _placer(redis, lost) as placer:
        await Registry(redis).beat(POOL, BEAT_A)
        placed = await placer.place(world.ask())
        await placer.flush()
        server.stop()
        for _ in range(300):
            placer.release(placed)
        await placer.flush()
        assert sum(lost.values()) == 300
        server.start()
        await Registry(redis).beat(POOL, BEAT_A)
        placed = await placer.place(world.ask())
        placer.release(placed)
        await placer.flush()
        assert sum(lost.values()) == 300
    await redis.aclose()


async def test_the_queue_is_bounded_and_settling_ends_in_time(
    start_valkey: StartValkey, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "MAX_QUEUED", 50)
    server, lost = start_valkey(), dict[str, int]()
    redis = connect(server.url)
    async with _placer(redis, lost) as placer:
        await Registry(redis).beat(POOL, BEAT_A)
        placed = await placer.place(world.ask())
        await placer.flush()
        server.freeze()
        for _ in range(80):
            placer.release(placed)
        assert lost == {"too many writes are waiting": 30}
        await placer.settle(0.1)  # and not once Redis has been given up
        assert lost.pop("the time limit of settling is over") == 50
        assert sum(lost.values()) == 30
        server.thaw()
    await redis.aclose()


async def test_a_replica_holds_no_more_requests_than_it_may_and_then_the_pool_is_full(
    world: World,
) -> None:
    await world.beat("a", "b")
    placed = [await world.place(max_outstanding=3) for _ in range(6)]
    assert sorted(p.chosen.replica for p in placed) == ["a"] * 3 + ["b"] * 3
    with pytest.raises(PoolFull, match="as many requests"):
        await world.place(max_outstanding=3)
    await world.prefilled(placed[0])  # decoding still takes a place
    with pytest.raises(PoolFull):
        await world.place(max_outstanding=3)
    with pytest.raises(PoolFull):
        await world.place(max_outstanding=3, only="a")
    fourth = await world.place(max_outstanding=4)
    assert fourth.chosen.outstanding == 3
    await world.release(fourth)
    await world.release(placed[0])
    assert (await world.place(max_outstanding=3)).chosen.replica == placed[0].chosen.replica


async def test_a_bound_holds_within_one_call_that_places_many(world: World) -> None:
    await world.beat("a", "b")
    done = await asyncio.gather(
        *(world.placer.place(world.ask(max_outstanding=3)) for _ in range(10)),
        return_exceptions=True,
    )
    assert sum(isinstance(result, PoolFull) for result in done) == 4
    assert {t.outstanding for t in (await world.terms()).values()} == {3}


async def test_a_caller_waits_for_its_own_time_or_the_common_one_and_leaves_no_lease(
    start_valkey: StartValkey, world: World
) -> None:
    server, limit_s = start_valkey(), 0.1
    redis = connect(server.url)
    wire = Wire(redis)
    placer = Placer(wire, POOL, timeout_s=lambda: limit_s)
    loop = asyncio.get_running_loop()

    async def waited(within_s: float | None = None) -> float:
        began = loop.time()
        with pytest.raises(TimeoutError):
            await placer.place(world.ask(within_s=within_s))
        return loop.time() - began

    await Registry(redis).beat(POOL, BEAT_A)
    await placer.place(world.ask())
    server.freeze()
    assert await waited() >= 0.1
    assert await waited(within_s=0.2) >= 0.2
    limit_s = 0.3
    assert await waited() >= 0.3
    server.thaw()
    await placer.place(world.ask())
    await placer.flush()
    (terms,) = await placer.explain(world.ask())
    assert terms.outstanding == 2
    await wire.aclose()
    await redis.aclose()
