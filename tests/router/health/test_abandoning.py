"""Requests at a replica that is out continue elsewhere, although its connections are open."""

import asyncio
from collections.abc import Callable
from typing import Any

import openai
import pytest
from aiohttp import web

from pando_fleet.registry.replica import ReplicaState
from tests.fleet.redis_server import RedisServer
from tests.ports import free_port
from tests.router.migration.test_migration_proxy import (
    CHAT,
    engine_says,
    nothing_leased,
    says,
    text_of,
    two,
)
from tests.router.scripted_engine import TEXT, Engine
from tests.router.world import Replica, completion, fleet, never, serving, status, streaming, until

STALLED = 'pando_router_abandoned_requests_total{pool="default",state="stalled"}'


CUT = engine_says().rindex(b"\n\n", 0, 700) + 2  # after some whole events


def holds(engine: Engine, *replicas: Replica) -> asyncio.Event:
    """The first replica to be asked stops in mid-answer; set the returned event to let it go on."""
    hold, begun = asyncio.Event(), False

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal begun
        is_first, begun = not begun, True
        stands: dict[str, Any] = {"cut": CUT, "hold": hold} if is_first else {}
        return await says(engine, **stands)(request)

    for replica in replicas:
        replica.answer = answer
    return hold


async def test_a_stream_leaves_a_replica_that_stalls(valkey_url: str) -> None:
    async with two(valkey_url) as (a, b, router):
        await router.ready("a", "b")
        holds(Engine(CHAT), a, b)
        stream = asyncio.ensure_future(text_of(router))
        await until(lambda: a.received or b.received, "one has the request")
        first, other = (a, b) if a.received else (b, a)
        await first.say(state=ReplicaState.STALLED)
        assert (await stream)[0] == TEXT
        assert len(first.received) == len(other.received) == 1
        await until(lambda: first.cancelled == 1, "the stalled replica's request is cancelled")
        assert await router.metric(STALLED) == 1
        await until(lambda: nothing_leased(valkey_url), "leases are gone")


QUICK: dict[str, Any] = {"health_timeout": 0.3}


async def test_a_stream_leaves_a_replica_that_is_lost_and_answers_no_check(valkey_url: str) -> None:
    async with fleet(valkey_url, "a", "b", **QUICK) as (router, [a, b]):
        holds(Engine(CHAT), a, b)
        stream = asyncio.ensure_future(text_of(router))
        await until(lambda: a.received or b.received, "one has the request")
        first, other = (a, b) if a.received else (b, a)
        first.health = never
        first.pause()
        assert (await stream)[0] == TEXT
        assert len(other.received) == 1
        lost = 'pando_router_abandoned_requests_total{pool="default",state="lost"}'
        assert await router.metric(lost) == 1


async def test_no_stream_moves_while_redis_is_away(
    start_valkey: Callable[..., RedisServer],
) -> None:
    """There are no heartbeats then, and failing checks of all replicas are no reason either."""
    server = start_valkey(port=free_port())
    async with fleet(server.url, "a", "b", **QUICK, unhealthy_after=2) as (router, [a, b]):
        hold = holds(Engine(CHAT), a, b)
        stream = asyncio.ensure_future(text_of(router))
        await until(lambda: a.received or b.received, "one has the request")
        a.health = b.health = never
        server.stop()

        async def all_fail() -> bool:
            seen = (await router.get("/fleet")).json
            rows = seen["pools"]["default"]
            assert {row["state"] for row in rows} == {"ready"}
            return seen["redis"] != "up" and not any(row["healthy"] for row in rows)

        await until(all_fail, "Redis is away, and all fail their checks")
        for _ in range(20):  # snapshots, and more
            assert await all_fail()
        assert len(a.received) + len(b.received) == 1
        a.health, b.health = a.say_name, b.say_name
        server.start()
        await router.ready("a", "b")
        assert not stream.done()
        hold.set()
        assert (await stream)[0] == TEXT  # the replica broke its connection


async def test_while_redis_is_away_a_stalled_replica_is_used_again_once_it_is_ready(
    start_valkey: Callable[..., RedisServer],
) -> None:
    """Its heartbeats cannot say so, and liveness, which a stalled worker has, is not enough."""
    server = start_valkey(port=free_port())
    async with Replica(server.url, "a") as a, serving(server.url) as router:
        a.readiness = status(503)
        await a.say(state=ReplicaState.STALLED)
        await router.ready("a", state="stalled")
        waiting = asyncio.ensure_future(router.post("/v1/completions", completion()))
        asked = asyncio.Event()

        async def is_not_ready(request: web.Request) -> web.StreamResponse:
            asked.set()
            return await status(503)(request)

        a.readiness = is_not_ready
        server.stop()
        await asked.wait()
        await router.ready("a", state="stalled")
        assert not a.received
        a.readiness = a.say_name
        assert (await waiting).replica == "a"
        await router.ready("a")
        server.start()
        await router.ready("a", state="stalled")  # as its heartbeats still say


async def test_a_stream_that_may_not_go_on_ends_with_an_error_that_says_why(
    valkey_url: str,
) -> None:
    async with two(valkey_url) as (a, b, router):
        await router.ready("a", "b")
        holds(Engine(CHAT), a, b)
        stream = asyncio.ensure_future(text_of(router, temperature=1))
        await until(lambda: a.received or b.received, "one has the request")
        first = a if a.received else b
        await first.say(state=ReplicaState.STALLED)
        with pytest.raises(openai.APIError, match="its engine is stalled"):
            await stream


async def test_a_stream_of_a_lost_replica_that_goes_on_talking_stays(valkey_url: str) -> None:
    """Heartbeats and answers to checks are missing, but it is only slow."""
    async with (
        fleet(valkey_url, "a", **QUICK, unhealthy_after=2) as (router, [a]),
        streaming(router, a) as (stream, response),
    ):
        a.health = never
        a.pause()

        async def is_out() -> bool:
            stream.put(b"data: 2\n\n")
            [row] = (await router.get("/fleet")).json["pools"]["default"]
            return row["state"] == "lost" and not row["healthy"]

        await until(is_out, "it is out")
        for _ in range(20):  # snapshots, and more
            await is_out()
        stream.end()
        assert (await response.read()).startswith(b"data: 2\n\n")


async def test_a_request_without_an_answer_yet_is_asked_of_another_replica(valkey_url: str) -> None:
    """Also on a reused connection, which must not be mistaken for one that the replica had
    closed."""
    async with two(valkey_url) as (a, b, router):
        await router.ready("a", "b")
        for prompt in ("one", "two", "three", "four"):
            await router.post("/v1/completions", completion(prompt))
        a.received.clear()
        b.received.clear()
        a.answer = b.answer = never
        asked = asyncio.ensure_future(router.post("/v1/completions", completion("five")))
        await until(lambda: a.received or b.received, "one has the request")
        first, other = (a, b) if a.received else (b, a)
        other.answer = other.say_name
        await first.say(state=ReplicaState.STALLED)
        assert (await asked).replica == other.name
        assert len(first.received) == 1


async def test_nothing_is_placed_at_a_stalled_replica_until_it_is_ready_again(
    valkey_url: str,
) -> None:
    async with two(valkey_url) as (a, b, router):
        await a.say(state=ReplicaState.STALLED)
        await router.ready("a", state="stalled")
        for number in range(8):
            answer = await router.post("/v1/completions", completion(f"{number} " * 99))
            assert answer.replica == "b"
        await a.say(state=ReplicaState.READY)
        await b.say(state=ReplicaState.STALLED)
        await router.ready("a")
        await router.ready("b", state="stalled")
        assert (await router.post("/v1/completions", completion("9 " * 99))).replica == "a"


async def test_requests_wait_where_all_are_stalled(valkey_url: str) -> None:
    """One recovers within a minute, by itself or through its watchdog."""
    async with two(valkey_url) as (a, b, router):
        for replica in (a, b):
            await replica.say(state=ReplicaState.STALLED)
            await router.ready(replica.name, state="stalled")
        waiting = asyncio.ensure_future(router.post("/v1/completions", completion()))
        queued = 'pando_router_queue_requests{pool="default"}'

        async def waits() -> bool:
            return await router.metric(queued) == 1

        await until(waits, "the request waits")
        await b.say(state=ReplicaState.READY)
        assert (await waiting).replica == "b"
