"""Every connection leaves a server that is no longer the master, and resolves its name again."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from pando_fleet.placement.placer import Ask, Placer
from pando_fleet.redis.client import FleetUnavailable, RedisClient, connect
from pando_fleet.redis.wire import Wire
from pando_fleet.registry.registry import Registry
from tests.fleet.redis.pair import pair
from tests.fleet.redis_server import RedisServer
from tests.fleet.world import BEAT, path
from tests.ports import free_port
from tests.waiting import until_async

Start = Callable[..., RedisServer]
NAMES = [f"r{number}" for number in range(8)]


@asynccontextmanager
async def clients(url: str) -> AsyncIterator[tuple[RedisClient, Wire]]:
    redis = connect(url)
    wire = Wire(redis)
    try:
        yield redis, wire
    finally:
        await wire.aclose()
        await redis.aclose()


async def test_nothing_fails_when_the_name_leads_to_a_new_master(start_server: Start) -> None:
    async with pair(start_server) as servers, clients(servers.url) as (redis, wire):
        registry, done, rounds = Registry(redis), asyncio.Event(), Counter[str]()
        lost: list[str] = []
        placer = Placer(wire, "p", failed=lambda reason, count: lost.append(reason))

        async def beats(name: str) -> None:
            await registry.beat("p", replace(BEAT, replica=name))

        async def reads(name: str) -> None:
            assert await registry.pools() == ["p"]
            assert [one.beat.replica for one in await registry.replicas("p")] == NAMES

        async def placements(name: str) -> None:
            placed = await placer.place(ask(f"{name}-{rounds['placements']}"))
            placer.prefilled(placed)
            placer.release(placed)

        async def again_and_again(act: Callable[[str], Awaitable[None]], name: str) -> None:
            while not done.is_set():
                await act(name)
                rounds[act.__name__] += 1

        async def some_more() -> None:
            before = rounds.copy()
            acts = ("beats", "reads", "placements")
            await until_async(lambda: all(rounds[a] > before[a] + 99 for a in acts), "more rounds")

        for name in NAMES:
            await beats(name)
        async with asyncio.TaskGroup() as load:
            for name in NAMES:
                for act in (beats, reads, placements):
                    load.create_task(again_and_again(act, name))
            await some_more()
            servers.switch(old_follows=servers.new.port)
            await some_more()
            with servers.new.admin() as new:
                switched_ms = new.time()[0] * 1000
                await until_async(lambda: _oldest_beat(new) > switched_ms, "beats at the new one")
            await some_more()
            done.set()
        await placer.flush()
        assert not lost


def _oldest_beat(admin: Any) -> float:
    return float(admin.zrange("pando:{p}:replicas", 0, 0, withscores=True)[0][1])


async def test_what_only_reads_leaves_as_well_once_a_placement_was_refused(
    start_server: Start,
) -> None:
    async with pair(start_server) as servers, clients(servers.url) as (redis, wire):
        registry, placer = Registry(redis), Placer(wire, "p")
        await registry.beat("p", replace(BEAT, replica="a"))
        placer.release(await placer.place(ask("1")))
        await placer.flush()
        servers.switch(old_follows=free_port())  # it answers reads with what it has
        await _beat_at(servers.new, "b")
        assert [one.beat.replica for one in await registry.replicas("p")] == ["a"]
        assert (await placer.place(ask("2"))).chosen.replica in ("a", "b")
        assert [one.beat.replica for one in await registry.replicas("p")] == ["a", "b"]


async def test_a_replica_that_does_not_answer_even_reads_is_left(start_server: Start) -> None:
    config = "replica-serve-stale-data no"
    async with pair(start_server, config) as servers, clients(servers.url) as (redis, wire):
        registry = Registry(redis)
        await registry.beat("p", replace(BEAT, replica="a"))
        assert await wire.call("k", "GET", "k") is None
        servers.switch(old_follows=free_port())
        assert [one.beat.replica for one in await registry.replicas("p")] == ["a"]
        assert await wire.call("k", "GET", "k") is None


async def test_while_the_name_still_leads_to_the_old_master_redis_is_unavailable(
    start_server: Start,
) -> None:
    async with pair(start_server) as servers, clients(servers.url) as (redis, wire):
        registry = Registry(redis)
        await registry.beat("p", replace(BEAT, replica="a"))
        servers.switch(old_follows=free_port())
        servers.front.target = servers.old.port
        for _ in range(3):
            with pytest.raises(FleetUnavailable, match="read only"):
                await registry.beat("p", replace(BEAT, replica="a"))
            with pytest.raises(FleetUnavailable, match="read only"):
                await wire.call("k", "SET", "k", 1)
        servers.front.target = servers.new.port
        await registry.beat("p", replace(BEAT, replica="a"))
        assert await wire.call("k", "SET", "k", 1) == b"OK"


async def test_heartbeats_follow_the_sentinels_at_once(start_server: Start) -> None:
    async with pair(start_server) as servers:
        old, new = servers.old.port, servers.new.port
        sentinel = start_server(
            "--sentinel", port=free_port(), config=f"sentinel monitor prod 127.0.0.1 {old} 1"
        )
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/prod"
        watch: Any = sentinel.admin()
        async with clients(url) as (redis, _):
            await Registry(redis).beat("p", replace(BEAT, replica="a"))
            with watch:
                watch.execute_command("SENTINEL", "REMOVE", "prod")
                watch.execute_command("SENTINEL", "MONITOR", "prod", "127.0.0.1", new, 1)
            servers.switch(old_follows=new)
            await Registry(redis).beat("p", replace(BEAT, replica="b"))


async def _beat_at(server: RedisServer, name: str) -> None:
    async with clients(server.url) as (redis, _):
        await Registry(redis).beat("p", replace(BEAT, replica=name))


def ask(lease: str) -> Ask:
    return Ask(
        keys=path(lease, 3), prompt_tokens=192, output_tokens=9, lease=lease, lease_ms=60_000
    )
