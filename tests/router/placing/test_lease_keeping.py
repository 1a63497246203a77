"""A router's leases when Redis loses keys or answers, and when routers die or are suspended."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from redis import Redis

from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.rows import LOAD, Load
from tests.fleet.redis_server import RedisServer
from tests.ports import free_port
from tests.router.process.router_process import router_process
from tests.router.world import Replica, RouterClient, completion, serving, until

KEYS = PoolKeys("default")
LEASES, PARTS, LOADS = KEYS.leases
STREAMS = 12
LONG: dict[str, Any] = {"lease_seconds": 3600.0}
"""So a lease that is gone has not expired."""
Start = Callable[..., RedisServer]


async def endless(request: web.Request) -> web.StreamResponse:
    """Begins to answer and never ends."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b"data: 1\n\n")
    await asyncio.Event().wait()
    raise AssertionError


async def begin(router: RouterClient, number: int) -> aiohttp.ClientResponse:
    body = completion(f"prompt {number}", stream=True)
    answer = await router.session.post(router.url + "/v1/completions", json=body)
    assert answer.status == 200
    assert await answer.content.readany() == b"data: 1\n\n"
    return answer


@asynccontextmanager
async def streams(router: RouterClient, count: int) -> AsyncIterator[list[aiohttp.ClientResponse]]:
    held = await asyncio.gather(*(begin(router, number) for number in range(count)))
    try:
        yield held
    finally:
        for answer in held:
            answer.close()


def rows(admin: Redis) -> list[Load]:
    packed: Any = admin.hgetall(LOADS)
    return [LOAD.unpack_row(row) for row in packed.values()]


def loads(admin: Redis) -> tuple[int, int, int]:
    """The current number of requests by the loads, by their parts and by the leases."""
    requests = sum(int(load.requests) for load in rows(admin))
    return requests, int(admin.hlen(PARTS)), int(admin.zcard(LEASES))


def waiting(admin: Redis) -> int:
    return sum(int(load.waiting) for load in rows(admin))


async def becomes(admin: Redis, count: int) -> None:
    await until(lambda: loads(admin) == (count,) * 3, f"{count} leases")


async def gave_up(router: RouterClient) -> bool:
    """Whether the router has closed its connection to Redis. Then its background calls, which have
    no shorter limit, have also failed."""
    health = (await router.get("/healthz")).json
    return health["redis"] == "away" and "redis_by_pool" not in health


@pytest.mark.parametrize("lost", ["all", LEASES, PARTS, LOADS])
async def test_streams_that_go_on_are_leased_again_a_moment_after_redis_lost_keys(
    valkey_server: RedisServer, valkey_url: str, lost: str
) -> None:
    async with Replica(valkey_url, "a") as a, serving(valkey_url, **LONG) as router:
        a.answer = endless
        await router.ready("a")
        with valkey_server.admin() as admin:
            async with streams(router, STREAMS) as held:
                await until(lambda: loads(admin) == (STREAMS,) * 3, "the streams being leased")
                if lost == "all":
                    admin.flushall()
                    await until(lambda: admin.exists(KEYS.terms), "the replica's heartbeat")
                else:
                    admin.delete(lost)
                for answer in held[:4]:  # streams end and begin meanwhile
                    answer.close()
                async with streams(router, 2):
                    await becomes(admin, STREAMS - 4 + 2)
                    await until(lambda: waiting(admin) == 0, "first bytes being out")
            await becomes(admin, 0)


async def test_answers_of_placements_that_a_frozen_redis_kept_leave_no_lease(
    start_valkey: Start,
) -> None:
    server = start_valkey(port=free_port())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(Replica(server.url, "a"))
        routers = [
            await stack.enter_async_context(serving(server.url, placement_timeout=0.25, **LONG))
            for _ in range(3)
        ]
        for router in routers:
            await router.ready("a")
        server.freeze()
        asked = [
            router.post("/v1/completions", completion(f"{number}"))
            for router in routers
            for number in range(10)
        ]
        answers = await asyncio.gather(*asked)
        assert {answer.status for answer in answers} == {200}
        for router in routers:
            await until(partial(gave_up, router), "no answer being waited for any more")
        server.thaw()
        with server.admin() as admin:
            await becomes(admin, 0)


@pytest.mark.e2e
async def test_places_of_a_killed_router_are_free_before_its_leases_expire(
    valkey_server: RedisServer, valkey_url: str
) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_replica_requests=30, **LONG) as other,
        router_process(valkey_url, max_replica_requests=30, **LONG) as (process, dying),
    ):
        a.answer = endless
        await other.ready("a")
        await dying.ready("a")
        with valkey_server.admin() as admin:
            async with streams(dying, 29), streams(other, 1):
                waits = asyncio.create_task(begin(other, 99))
                await until(lambda: admin.zcard(KEYS.routers) == 2, "both routers' heartbeats")
                await until(lambda: loads(admin) == (30,) * 3, "every place being taken")
                process.kill()
                (await waits).close()
                await becomes(admin, 1)


@pytest.mark.e2e
async def test_a_router_that_stood_still_has_its_leases_again(
    valkey_server: RedisServer, valkey_url: str
) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, **LONG) as other,
        router_process(valkey_url, **LONG) as (process, stopped),
    ):
        a.answer = endless
        await other.ready("a")
        await stopped.ready("a")
        with valkey_server.admin() as admin:
            async with streams(stopped, STREAMS), streams(other, 1):
                await until(lambda: admin.zcard(KEYS.routers) == 2, "both routers' heartbeats")
                os.kill(process.pid, signal.SIGSTOP)
                await becomes(admin, 1)
                os.kill(process.pid, signal.SIGCONT)
                await becomes(admin, STREAMS + 1)
