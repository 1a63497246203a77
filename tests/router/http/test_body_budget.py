"""The bodies of all requests together are bounded, with a real router and real sockets."""

import asyncio
import json
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest
from pydantic import ValidationError

from pando_fleet.current import Current
from pando_fleet.http.server.byte_budget import ByteBudget
from pando_router.configuration.settings import RouterSettings
from tests.router.http.http_world import Raw
from tests.router.world import Replica, RouterClient, Stream, completion, fleet, serving, until

HELD = "pando_router_body_bytes"
BODY = json.dumps(completion("x" * 90_000)).encode()
LENGTH = b"content-length: %d\r\n" % len(BODY)
CHUNKED = b"transfer-encoding: chunked\r\n"


def at(router: RouterClient) -> Raw:
    port = urlsplit(router.url).port
    assert port is not None
    return Raw(port)


def head(framing: bytes) -> bytes:
    return b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n%b\r\n" % framing


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def holds(router: RouterClient, size: int) -> None:
    async def reached() -> bool:
        return await router.metric(HELD) == size

    await until(reached, f"{size} bytes of bodies are held")


async def test_bodies_that_are_being_read_are_bounded_together(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_body_bytes=100_000, max_bodies_bytes=150_000) as router,
        at(router) as slow,
        at(router) as declared,
        at(router) as chunked,
    ):
        await router.ready("a")
        came = len(BODY) - 10
        slow.send(head(LENGTH) + BODY[:came])
        await holds(router, came)

        declared.send(head(LENGTH + b"expect: 100-continue\r\n"))  # and not a byte of it is read
        answer = await declared.answer()
        assert (answer.status, answer.json["error"]["code"]) == (503, "overloaded")
        assert answer.headers["retry-after"] == "1"

        chunked.send(head(CHUNKED) + chunk(BODY[:30_000]))
        await holds(router, came + 30_000)
        chunked.send(chunk(BODY[30_000:70_000]))
        assert (await chunked.answer()).status == 503
        await holds(router, came)

        slow.send(BODY[came:])
        assert (await slow.answer()).status == 200
        assert len(a.received) == 1
        await holds(router, 0)
        assert (await router.request("POST", "/v1/completions", data=BODY)).status == 200


async def test_bodies_that_are_only_announced_keep_nobody_out(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a"),
        serving(valkey_url, max_body_bytes=100_000, max_bodies_bytes=150_000) as router,
        AsyncExitStack() as stack,
    ):
        await router.ready("a")
        idle = [await stack.enter_async_context(at(router)) for _ in range(40)]
        for connection in idle:
            connection.send(head(LENGTH) + BODY[:10])
        await holds(router, 10 * len(idle))  # not the 3.6 MB that they announce
        answer = await router.request("POST", "/v1/completions", data=BODY)
        assert answer.status == 200, answer.json
        for connection in idle:
            connection.send(BODY[10:])
        answers = await asyncio.gather(*(connection.answer() for connection in idle))
        assert {answer.status for answer in answers} <= {200, 503}  # 200 as far as there is room
        assert any(answer.status == 200 for answer in answers)
        await holds(router, 0)


async def test_so_are_those_that_are_held_for_their_answers(valkey_url: str) -> None:
    """A client that leaves frees the room."""
    async with fleet(valkey_url, "a", max_body_bytes=100_000, max_bodies_bytes=150_000) as (
        router,
        [a],
    ):
        answering = a.answer
        a.answer = Stream()
        async with at(router) as asked:
            asked.send(head(LENGTH) + BODY)
            await until(lambda: a.received, "the replica has it")
            assert await router.metric(HELD) == len(BODY)
            assert (await router.request("POST", "/v1/completions", data=BODY)).status == 503
        await holds(router, 0)
        a.answer = answering
        assert (await router.request("POST", "/v1/completions", data=BODY)).status == 200
        async with at(router) as half:
            half.send(head(LENGTH) + BODY[:80_000])
            await holds(router, 80_000)
        await holds(router, 0)


async def test_bodies_for_the_control_plane_count_as_well(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a") as a,
        serving(valkey_url, max_body_bytes=100_000, max_bodies_bytes=150_000) as router,
        at(router) as slow,
    ):
        slow.send(b"POST /route/explain HTTP/1.1\r\nhost: x\r\n%b\r\n" % LENGTH + BODY[:80_000])
        await holds(router, 80_000)
        assert (await router.request("POST", "/v1/completions", data=BODY)).status == 503
        assert not a.received


def test_the_longest_body_must_find_room() -> None:
    with pytest.raises(ValidationError, match="max_bodies_bytes must be at least max_body_bytes"):
        RouterSettings(max_body_bytes=2000, max_bodies_bytes=1999)


async def test_large_bodies_are_worked_on_in_different_turns_of_the_event_loop() -> None:
    """Else 64 of them at once would keep everything else waiting for a second."""
    budget = ByteBudget(Current(1))
    loop, now = asyncio.get_running_loop(), 0
    turns: list[int] = []

    def tick() -> None:
        nonlocal now
        now += 1
        loop.call_soon(tick)

    async def work() -> None:
        await budget.turn()
        turns.append(now)

    tick()
    await asyncio.gather(*(work() for _ in range(10)))
    assert len(set(turns)) == 10
    assert turns == sorted(turns)
