"""Every setting that needs no restart takes effect on a router that runs, with what it has by then:
its replicas, pools, queues, connections and requests.

The tests are made from the settings themselves: a new one fails here until it has an effect in
EFFECTS that can be seen from outside, or is marked RESTART.
"""

import asyncio
import gc
import json
import re
import socket
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Any

import pytest
import yaml
from aiohttp import web

from pando_fleet.records.queues import Queues
from pando_fleet.redis.client import TIMEOUT_S, RedisClient, connect
from pando_router.configuration.setting_types import needing_restart
from pando_router.configuration.settings import RouterSettings
from pando_router.core import retry_budget
from tests.router.configuration.reloading import Reloading, command, put, reloading
from tests.router.http.http_world import Raw
from tests.router.upstreams.foreign_engines import Vllm
from tests.router.world import (
    PATIENCE_S,
    Answer,
    Replica,
    RouterClient,
    chat,
    completion,
    never,
    status,
    until,
)

ENGINE = "the URL of World.engine"
LONG = "x" * 2_000
SLOW_S, FAST_S, BETWEEN_S = 3.0, 0.1, 1.5
"""Limits before and after, and what tells them apart by the clock, on a busy machine, too."""


@dataclass
class World:
    """A router with replicas, some open connections, and an engine that it need not know."""

    reloading: Reloading
    replicas: list[Replica]  # three
    engine: Vllm
    redis: RedisClient
    caplog: pytest.LogCaptureFixture
    release: asyncio.Event
    connections: list[Raw]
    held: list["asyncio.Task[Answer]"] = field(default_factory=list)

    @property
    def router(self) -> RouterClient:
        return self.reloading.router

    async def ask(self, prompt: str = "hello", *, model: str = "m", **headers: str) -> Answer:
        body = completion(prompt) | {"model": model}
        return await self.router.post("/v1/completions", body, **headers)

    async def hold(self, count: int, size: int = 1) -> None:
        """So many requests are at the replicas, from here on."""
        while len(self.held) < count:
            self.held.append(asyncio.create_task(self.ask("held" + "x" * size)))
        lifecycle = self.reloading.running.lifecycle
        await until(lambda: lifecycle.requests == count, "requests being held")
        await until(lambda: sum(len(r.received) for r in self.replicas) >= count, "them there")

    async def total(self, metric: str) -> float:
        """Over all labels."""
        lines = (await self.router.get("/metrics")).body.decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(metric + "{"))

    async def is_healthy(self, replica: Replica) -> bool:
        pools = (await self.router.get("/fleet")).json["pools"]
        (row,) = (row for row in pools["default"] if row["replica"] == replica.name)
        return bool(row["healthy"])


@asynccontextmanager
async def running(
    redis_url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    **settings: Any,
) -> AsyncIterator[World]:
    release = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        prompt = json.loads(await request.read()).get("prompt", "")
        if prompt.startswith("held"):
            await release.wait()
        elif prompt == "silent":
            await never(request)
        elif prompt == "failing":
            return await status(503)(request)
        elif prompt == "large":
            return web.Response(body=bytes(64 << 20))
        elif prompt in ("stalling", "breaking"):
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            await response.write(b": " + b"x" * 100 + b"\n\n")
            if prompt == "stalling":
                await never(request)
            assert request.transport is not None
            request.transport.close()
            return response
        return web.json_response({})

    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(Vllm("foreign"))
        started = [await stack.enter_async_context(Replica(redis_url, name)) for name in "abc"]
        for replica in started:
            replica.answer = answer
        file = tmp_path / "router.yaml"
        world = await stack.enter_async_context(
            reloading(redis_url, file, **filled(settings, engine))
        )
        await world.router.ready(*(replica.name for replica in started))
        redis = connect(redis_url)
        stack.push_async_callback(redis.aclose)
        connections = []
        for _ in range(3):
            connection = await stack.enter_async_context(Raw(world.router.port))
            connection.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await connection.answer()).status == 200
            connections.append(connection)
        found = World(world, started, engine, redis, caplog, release, connections)
        try:
            yield found
        finally:
            release.set()
            await asyncio.gather(*found.held)


def filled(settings: dict[str, Any], engine: Vllm) -> dict[str, Any]:
    return {name: [engine.url] if v == [ENGINE] else v for name, v in settings.items()}


# -- what can be seen of a router ------------------------------------------------------------------

Look = Callable[[World], Awaitable[Any]]


def answered(prompt: str = "hello", model: str = "m", **headers: str) -> Look:
    """The status of a request."""

    async def look(world: World) -> int:
        return (await world.ask(prompt, model=model, **headers)).status

    return look


def told(prompt: str, pattern: str, *, model: str = "m") -> Look:
    """What the answer says there."""

    async def look(world: World) -> str:
        answer = await world.ask(prompt, model=model)
        found = re.search(pattern, answer.body.decode())
        return found[1] if found else f"{answer.status} {answer.body!r}"

    return look


def crowded(held: int = 3, size: int = 1, headers: dict[str, str] | None = None) -> Look:
    """What another request is answered while so many, one for each replica, are at theirs."""

    async def look(world: World) -> str | int:
        await world.hold(held, size)
        answer = await world.ask("x" * size, **headers or {})
        return answer.status if answer.status == 200 else answer.json["error"]["code"] or 400

    return look


def spreads(header: str = "x-none") -> Look:
    """Whether the same prompt, asked by many sessions, comes to several replicas."""

    async def look(world: World) -> bool:
        return len({(await world.ask(LONG, **{header: f"s{n}"})).replica for n in range(12)}) > 1

    return look


def tries(prompt: str, **body: Any) -> Look:
    """How many replicas a request comes to."""

    async def look(world: World) -> int:
        before = sum(len(replica.received) for replica in world.replicas)
        await world.router.post("/v1/completions", completion(prompt, **body))
        return sum(len(replica.received) for replica in world.replicas) - before

    return look


def sent(header: str, **body: Any) -> Look:
    """What a replica gets as that header."""

    async def look(world: World) -> str | None:
        for replica in world.replicas:
            replica.received.clear()
        await world.router.post("/v1/chat/completions", chat("hello", **body))
        (received,) = (one for replica in world.replicas for one in replica.received)
        return received.headers.get(header)

    return look


def health(handler: Any) -> Look:
    """Whether a replica whose checks end like that is taken for healthy."""

    async def look(world: World) -> bool:
        world.replicas[0].health = handler
        return await world.is_healthy(world.replicas[0])

    return look


async def recovery(world: World) -> bool:
    """Whether a replica is healthy soon after it was not."""
    replica, passed = world.replicas[0], 0

    async def passes(request: web.Request) -> web.StreamResponse:
        nonlocal passed
        passed += 1
        return web.Response()

    async def is_out() -> bool:
        return not await world.is_healthy(replica)

    replica.health = status(500)
    await until(is_out, "the replica being unhealthy")
    replica.health = passes
    await until(lambda: passed > 4, "some checks passing")
    return await world.is_healthy(replica)


async def checked_path(world: World) -> bool:
    return any(one.path == "/other" for replica in world.replicas for one in replica.received)


async def probing_is_fast(world: World) -> bool:
    probed, began = world.engine.probed, monotonic()
    await until(lambda: world.engine.probed >= probed + 2, "two probes")
    return monotonic() - began < BETWEEN_S


async def is_shadowed(world: World) -> bool:
    """More than the one sample that each new shadow takes at once."""
    before = await world.total("pando_router_shadow_requests_total")
    for _ in range(8):
        await world.ask()
    return await world.total("pando_router_shadow_requests_total") - before > 1


async def is_logged(world: World) -> bool:
    world.caplog.clear()
    await world.ask()
    return any(record.message == "request" for record in world.caplog.records)


async def placement_is_given_up_fast(world: World) -> bool:
    async def is_up() -> bool:
        return bool((await world.router.get("/fleet")).json["redis"] == "up")

    await world.ask()  # its pool is known by then
    await until(is_up, "Redis being up")
    await world.redis.execute_command("CLIENT", "PAUSE", "20000", "WRITE")
    began = monotonic()
    assert (await world.ask()).status == 200
    took_s = monotonic() - began
    await world.redis.execute_command("CLIENT", "UNPAUSE")
    return took_s < TIMEOUT_S / 2  # which a placement may take in any case


async def leases_are_short(world: World) -> bool:
    await world.hold(1)
    soon_ms = (time() + 60) * 1000
    return int(await world.redis.zcount("pando:{default}:leases", 0, soon_ms)) == 1


async def much_is_expected_of_who_waits(world: World) -> bool:
    await world.hold(len(world.replicas))
    queues, waiting = Queues(world.redis), asyncio.create_task(world.ask())

    async def told() -> bool:
        return (await queues.read("default")).requests == 1

    await until(told, "the queue being told")
    tokens = (await queues.read("default")).tokens
    waiting.cancel()

    async def left() -> bool:
        return (await queues.read("default")).requests == 0

    await until(left, "nobody waiting")
    return tokens > 1000


def refusal(data: bytes) -> Look:
    """What is said on an open connection about these bytes."""

    async def look(world: World) -> str:
        connection = world.connections.pop()
        connection.send(data)
        answer = await connection.answer()
        found = re.search(rb"within ([\d.]+ s)", answer.body)
        return found[1].decode() if found else str(answer.status)

    return look


async def idle_connection_ends_fast(world: World) -> bool:
    connection = world.connections.pop()
    connection.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
    await connection.answer()
    try:
        async with asyncio.timeout(BETWEEN_S):
            return await connection.closed()
    except TimeoutError:
        return False


async def stuck_reader_is_cut_fast(world: World) -> bool:
    connection, lifecycle = world.connections.pop(), world.reloading.running.lifecycle
    connection.stop_reading()
    body = json.dumps(completion("large")).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    connection.send(head + body)
    await until(lambda: lifecycle.requests == 1, "the request")
    began = monotonic()
    await until(lambda: lifecycle.requests == 0, "its end")
    return monotonic() - began < BETWEEN_S


async def new_connection(world: World) -> int:
    """What a client gets that connects while another has a request running."""
    await world.hold(1)
    async with Raw(world.router.port) as connection:
        connection.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        return (await connection.answer()).status


async def connecting(world: World) -> str:
    """How long the router waits for a replica that takes no connection."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        await world.replicas[0].say(url=f"http://127.0.0.1:{address[1]}", model="deaf")
        try:
            await until(lambda: lists(world.router, "deaf"), "the model")
            return str(await told("hello", r"within ([\d.]+ s)", model="deaf")(world))
        finally:
            for one in waiting:
                one.close()


async def lists(router: RouterClient, model: str) -> bool:
    models = (await router.get("/v1/models")).json["data"]
    return any(one["id"] == model for one in models)


# -- what a change of each setting does ------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    before: Any
    after: Any
    look: Look
    sees: tuple[Any, Any]  # before, after
    given: dict[str, Any] = field(default_factory=dict)  # other settings


IMPATIENT = {"queue_timeout": 0.2, "max_replica_requests": 1}
CHECKED = {"health_interval": 0.02}
SOLE_TRY = {"max_tries": 1}
PROBED = {"upstream": [ENGINE]}

EFFECTS = {
    "policy": Effect("prefix_hash", "round_robin", spreads(), (False, True)),
    "pool_policies": Effect({}, {"default": "round_robin"}, spreads(), (False, True)),
    "aliases": Effect({}, {"smart": "m"}, answered(model="smart"), (404, 200)),
    "allow_policy_header": Effect(
        False, True, answered(**{"x-pando-policy": "random"}), (403, 200)
    ),
    "session_header": Effect("x-a", "x-b", spreads("x-b"), (False, True), {"policy": "session"}),
    "shadow_policy": Effect(None, "random", is_shadowed, (False, True), {"shadow_per_second": 999}),
    "shadow_per_second": Effect(
        0.001, 1000, is_shadowed, (False, True), {"shadow_policy": "random"}
    ),
    "expected_pools": Effect(
        {}, {"asleep": "late"}, answered(model="late"), (404, 503), {"queue_timeout": 0.2}
    ),
    "upstream": Effect([], [ENGINE], answered(model="foreign"), (404, 200)),
    "upstream_interval": Effect(SLOW_S, FAST_S, probing_is_fast, (False, True), PROBED),
    "upstream_api_key": Effect(None, "secret", sent("authorization"), (None, "Bearer secret")),
    "max_body_bytes": Effect(100_000, 1000, answered(LONG), (200, 413)),
    "max_bodies_bytes": Effect(
        100_000, 1000, crowded(1, size=800), (200, "overloaded"), {"max_body_bytes": 1000}
    ),
    "max_requests": Effect(100, 1, crowded(1), (200, "overloaded")),
    "max_tries": Effect(1, 2, tries("failing"), (1, 2)),
    "retry_share": Effect(0.0, 1.0, tries("failing"), (1, 2)),
    "connect_timeout": Effect(0.3, 0.2, connecting, ("0.3 s", "0.2 s"), SOLE_TRY),
    "first_byte_timeout": Effect(
        0.3, 0.2, told("silent", r"sent nothing for ([\d.]+) s"), ("0.3", "0.2")
    ),
    "idle_timeout": Effect(
        0.3, 0.2, told("stalling", r"sent nothing for ([\d.]+) s"), ("0.3", "0.2")
    ),
    "request_timeout": Effect(
        0.3, 0.2, told("silent", r"did not finish within ([\d.]+) s"), ("0.3", "0.2")
    ),
    "max_replica_connections": Effect(
        1, 100, crowded(), ("queue_timeout", 200), {"queue_timeout": 0.2}
    ),
    "header_timeout": Effect(0.3, 0.2, refusal(b"GET / HTTP/1.1\r\nho"), ("0.3 s", "0.2 s")),
    "body_timeout": Effect(
        0.3,
        0.2,
        refusal(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{"),
        ("0.3 s", "0.2 s"),
    ),
    "keep_alive_timeout": Effect(3600, FAST_S, idle_connection_ends_fast, (False, True)),
    "write_timeout": Effect(SLOW_S, FAST_S, stuck_reader_is_cut_fast, (False, True)),
    "max_connections": Effect(100, 1, new_connection, (200, 503)),
    "max_header_bytes": Effect(
        10_000,
        1024,
        refusal(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-long: " + b"x" * 3000 + b"\r\n\r\n"),
        ("200", "431"),
    ),
    "max_replica_requests": Effect(
        100, 1, crowded(), (200, "queue_timeout"), {"queue_timeout": 0.2}
    ),
    "queue_requests": Effect(9, 0, crowded(), ("queue_timeout", "queue_full"), IMPATIENT),
    "queue_bytes": Effect(9_999, 0, crowded(), ("queue_timeout", "queue_full"), IMPATIENT),
    "queue_timeout": Effect(
        0.3,
        0.2,
        told("hello", r"within ([\d.]+) s", model="late"),
        ("0.3", "0.2"),
        {"expected_pools": {"asleep": "late"}},
    ),
    "allow_priority_header": Effect(
        False, True, crowded(headers={"x-priority": "high"}), ("queue_timeout", 400), IMPATIENT
    ),
    "health_interval": Effect(0, 0.02, health(status(500)), (True, False), {"unhealthy_after": 1}),
    "health_timeout": Effect(
        60, 0.1, health(never), (True, False), CHECKED | {"unhealthy_after": 1}
    ),
    "health_path": Effect("/healthz", "/other", checked_path, (False, True), CHECKED),
    "unhealthy_after": Effect(10_000, 1, health(status(500)), (True, False), CHECKED),
    "healthy_after": Effect(10_000, 1, recovery, (False, True), CHECKED | {"unhealthy_after": 1}),
    "placement_timeout": Effect(SLOW_S, FAST_S, placement_is_given_up_fast, (False, True)),
    "lease_seconds": Effect(3000, 5, leases_are_short, (False, True)),
    "expected_output_tokens": Effect(
        10, 9_000, much_is_expected_of_who_waits, (False, True), {"max_replica_requests": 1}
    ),
    "migrate": Effect(
        "off", "always", sent("x-pando-token-ids", stream=True, temperature=1), (None, "1")
    ),
    "max_migrations": Effect(1, 2, tries("breaking", stream=True, temperature=0), (2, 3)),
    "migrate_stream_bytes": Effect(
        10, 10_000, tries("breaking", stream=True, temperature=0), (1, 3)
    ),
    "access_log_sample": Effect(0.0, 1.0, is_logged, (False, True)),
    "access_log_slow_seconds": Effect(
        3600, 1e-6, is_logged, (False, True), {"access_log_sample": 0.0}
    ),
}
"""By setting."""

ENDINGS = ("leave_seconds", "drain_seconds")
"""Read when a router ends: seen of a process below."""

RELOADABLE = sorted(RouterSettings.model_fields.keys() - needing_restart(RouterSettings))


@pytest.mark.parametrize("name", [name for name in RELOADABLE if name not in ENDINGS])
async def test_a_reloaded_setting_takes_effect_on_what_exists_already(
    name: str,
    valkey_url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert name in EFFECTS, f"{name}: show its effect in EFFECTS, or mark it RESTART"
    effect = EFFECTS[name]
    caplog.set_level("INFO", "pando.router")
    monkeypatch.setattr(retry_budget, "MIN_PER_S", 0 if name == "retry_share" else 10)
    given = effect.given | {name: effect.before}
    async with running(valkey_url, tmp_path, caplog, **given) as world:
        await shows(world, effect.look, effect.sees[0])
        await world.reloading.write(**filled(given | {name: effect.after}, world.engine))
        await shows(world, effect.look, effect.sees[1])


async def shows(world: World, look: Look, wanted: Any) -> None:
    """Some of it holds with the next look at the fleet, and no later."""
    deadline = monotonic() + PATIENCE_S
    while (found := await look(world)) != wanted:
        assert monotonic() < deadline, f"{found!r} instead of {wanted!r}"
        await asyncio.sleep(0.005)


def test_no_effect_is_of_a_setting_that_is_gone() -> None:
    assert set(RELOADABLE) == EFFECTS.keys() | set(ENDINGS)


async def test_nobody_keeps_settings_that_were_replaced(
    valkey_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(valkey_url, tmp_path, caplog, **IMPATIENT) as world:
        live = world.reloading.running.live
        await world.reloading.write(**IMPATIENT, aliases={"one": "m"})
        replaced = weakref.ref(live.settings)
        await world.reloading.write(**IMPATIENT, aliases={"two": "m"})
        assert await crowded()(world) == "queue_timeout"  # what is made of settings is made anew
        await world.router.get("/openapi.json")

        async def is_gone() -> bool:
            gc.collect()
            return replaced() is None

        await until(is_gone, "the old settings being gone")


@pytest.mark.e2e
@pytest.mark.parametrize("name", ENDINGS)
async def test_a_router_ends_as_its_settings_are_by_then(
    name: str, valkey_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "router.yaml"
    long = {"leave_seconds": 0, "drain_seconds": 0, name: 3600}
    async with Replica(valkey_url, "a") as a, command(valkey_url, file, **long) as (child, router):
        await router.ready("a")
        a.answer = never
        held = asyncio.create_task(router.post("/v1/completions", completion()))
        await until(lambda: a.received, "a request that does not end")
        put(file, yaml.safe_dump({"leave_seconds": 0, "drain_seconds": 0, "aliases": {"new": "m"}}))
        await until(lambda: lists(router, "new"), "the file being read")
        child.terminate()
        async with asyncio.timeout(PATIENCE_S):
            await child.wait()
        await asyncio.gather(held, return_exceptions=True)
