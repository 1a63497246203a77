"""Observes the effects of settings on a running router from outside."""

import asyncio
import json
import re
import socket
from collections.abc import Awaitable, Callable
from time import monotonic, time
from typing import Any

from aiohttp import web

from pando_fleet.records.queues import Queues
from pando_fleet.redis.client import TIMEOUT_S
from tests.router.configuration.running_world import World
from tests.router.http.http_world import Raw
from tests.router.world import RouterClient, chat, completion, status, until

LONG = "x" * 2_000
BETWEEN_S = 1.5
"""Separates limits before and after by time, even on a busy machine."""

Look = Callable[[World], Awaitable[Any]]


def answered(prompt: str = "hello", model: str = "m", **headers: str) -> Look:
    """The status of a request."""

    async def look(world: World) -> int:
        return (await world.ask(prompt, model=model, **headers)).status

    return look


async def many_values(world: World) -> int:
    """The status of a request whose body has 40,000 values."""
    body = completion() | {"unknown": [1] * 40_000}
    return (await world.router.post("/v1/completions", body)).status


def told(prompt: str, pattern: str, *, model: str = "m") -> Look:
    """The part of the answer that matches the pattern."""

    async def look(world: World) -> str:
        answer = await world.ask(prompt, model=model)
        found = re.search(pattern, answer.body.decode())
        return found[1] if found else f"{answer.status} {answer.body!r}"

    return look


def crowded(held: int = 3, size: int = 1, headers: dict[str, str] | None = None) -> Look:
    """The answer to another request while `held` requests are at the replicas."""

    async def look(world: World) -> str | int:
        await world.hold(held, size)
        answer = await world.ask("x" * size, **headers or {})
        return answer.status if answer.status == 200 else answer.json["error"]["code"] or 400

    return look


def spreads(header: str = "x-none") -> Look:
    """Whether the same prompt from many sessions goes to several replicas."""

    async def look(world: World) -> bool:
        return len({(await world.ask(LONG, **{header: f"s{n}"})).replica for n in range(12)}) > 1

    return look


def tries(prompt: str, **body: Any) -> Look:
    """How many replicas a request reaches."""

    async def look(world: World) -> int:
        before = sum(len(replica.received) for replica in world.replicas)
        await world.router.post("/v1/completions", completion(prompt, **body))
        return sum(len(replica.received) for replica in world.replicas) - before

    return look


def sent(header: str, **body: Any) -> Look:
    """The header's value at the replica."""

    async def look(world: World) -> str | None:
        for replica in world.replicas:
            replica.received.clear()
        await world.router.post("/v1/chat/completions", chat("hello", **body))
        (received,) = (one for replica in world.replicas for one in replica.received)
        return received.headers.get(header)

    return look


def health(handler: Any) -> Look:
    """Whether a replica with this answer to checks counts as healthy."""

    async def look(world: World) -> bool:
        world.replicas[0].health = handler
        return await world.is_healthy(world.replicas[0])

    return look


async def recovery(world: World) -> bool:
    """Whether an unhealthy replica becomes healthy again soon."""
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


async def is_recorded(world: World) -> bool:
    """Whether the router says so; what it then writes is shown by tests/router/recording."""
    return bool((await world.router.get("/recording")).json["on"])


async def placement_is_given_up_fast(world: World) -> bool:
    async def is_up() -> bool:
        return bool((await world.router.get("/fleet")).json["redis"] == "up")

    await world.ask()  # now its pool is known
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


async def sessions_are_noted(world: World) -> bool:
    await world.replicas[0].say(capacity_tokens=100_000)
    await world.ask(2 * LONG)  # a shorter prompt is no session
    return bool(await world.redis.exists("pando:{default}:sessions"))


async def first_line_is_left_out(world: World) -> bool:
    """Whether a prompt matches one that differs in a line of an agent's, which changes."""
    matched = 0
    for stamp in "ab":
        system = {"role": "system", "content": f"x-anthropic-billing-header: {stamp}\n{LONG}"}
        body = chat() | {"messages": [system, {"role": "user", "content": "hello"}]}
        answer = await world.router.post("/v1/chat/completions", body)
        matched = int(answer.headers["x-pando-matched-tokens"])
    return matched > 0


async def much_is_expected_of_who_waits(world: World) -> bool:
    await world.hold(len(world.replicas))
    queues, waiting = Queues(world.redis), asyncio.create_task(world.ask())

    async def told() -> bool:
        return (await queues.read("default")).requests == 1

    await until(told, "the queue being reported")
    tokens = (await queues.read("default")).tokens
    waiting.cancel()

    async def left() -> bool:
        return (await queues.read("default")).requests == 0

    await until(left, "nobody waiting")
    return tokens > 1000


def refusal(data: bytes) -> Look:
    """The answer to these bytes on an open connection."""

    async def look(world: World) -> str:
        connection = world.connections.pop()
        connection.send(data)
        answer = await connection.answer()
        found = re.search(rb"(?:within|less than) ([\d.]+ (?:s|bytes))", answer.body)
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
    """The answer to a client that connects while another's request is running."""
    await world.hold(1)
    async with Raw(world.router.port) as connection:
        connection.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        return (await connection.answer()).status


async def page_is_there(world: World) -> int:
    """The status of the chat page."""
    return (await world.router.get("/chat")).status


async def connecting(world: World) -> str:
    """How long the router waits for a replica that accepts no connection."""
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
