"""Many hostile clients at once: what each of them holds is bounded, and nobody else notices."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from tests.e2e.conftest import MODEL
from tests.e2e.hostile.beside import TRIES, WAIT_S, alone, ask, memory, neighbour, shrinks_to
from tests.e2e.hostile.rows import COMPLETIONS, post
from tests.e2e.up_process import UpProcess
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.e2e

MIB = 1 << 20
AT_ONCE = 100  # connections being opened; more than a listener's backlog would be refused
ASKS = 10  # of the normal client while a flood stands

UNFINISHED = post(COMPLETIONS, b'{"model":')[:-9].replace(b"length: 9", b"length: 100") + b"{"
HALF_HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-a: "


@asynccontextmanager
async def held(url: str, data: list[bytes]) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """One connection for each of `data`, which stays open after that was sent; resets all."""
    where = urlsplit(url)
    turns = asyncio.Semaphore(AT_ONCE)
    writers: list[asyncio.StreamWriter] = []

    async def hold(one: bytes) -> None:
        async with turns:
            _, writer = await asyncio.open_connection(where.hostname, where.port)
            writers.append(writer)
            for start in range(0, len(one), MIB):
                writer.write(one[start : start + MIB])
                await writer.drain()

    try:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*map(hold, data))
        yield writers
    finally:
        for writer in writers:
            writer.transport.abort()


@asynccontextmanager
async def trickling(url: str, data: list[bytes]) -> AsyncIterator[None]:
    """As `held`, and each connection sends one more byte a second."""

    async def go_on(writers: list[asyncio.StreamWriter]) -> None:
        while True:
            for writer in writers:
                if not writer.transport.is_closing():
                    writer.write(b"a")
            await asyncio.sleep(1.0)

    async with held(url, data) as writers:
        sending = asyncio.create_task(go_on(writers))
        try:
            yield
        finally:
            sending.cancel()


async def undisturbed(http: aiohttp.ClientSession, up: UpProcess, usual: float, url: str) -> None:
    """Fails unless normal requests get their answers in the usual time."""
    for _ in range(ASKS):
        waits: list[float] = []
        while not waits or (len(waits) < TRIES and min(waits) > usual + WAIT_S):
            waits.append(await ask(http, url))
        assert min(waits) <= usual + WAIT_S, waits


def idle(up: UpProcess) -> None:
    """Waits until no part has a request, and no KV tokens are held."""

    def is_idle() -> bool:
        rows = up.replicas().values()
        pinned: int = sum(row["pinned_tokens"] + row["running"] + row["waiting"] for row in rows)
        in_flight: int = sum(row["in_flight"] for row in rows)
        return pinned + in_flight == 0

    until(is_idle, "nobody is served")


@pytest.mark.parametrize("data", [UNFINISHED, HALF_HEAD], ids=["bodies", "heads"])
async def test_1300_unfinished_requests_to_a_worker(
    up: UpProcess, http: aiohttp.ClientSession, data: bytes
) -> None:
    worker = up.replicas()["worker-0"]["url"]
    usual = await alone(http, up)
    async with trickling(worker, [data] * 1300):
        await undisturbed(http, up, usual, worker)
        await undisturbed(http, up, usual, up.url)
        assert up.get("/readyz", worker)
    idle(up)


@pytest.mark.long
@pytest.mark.parametrize("data", [UNFINISHED, HALF_HEAD], ids=["bodies", "heads"])
async def test_4150_unfinished_requests_at_the_router(
    up: UpProcess, http: aiohttp.ClientSession, data: bytes
) -> None:
    usual = await alone(http, up)
    async with trickling(up.url, [data] * 4150):
        await undisturbed(http, up, usual, up.url)
        assert up.get("/readyz")
    idle(up)


@pytest.mark.long
@pytest.mark.parametrize("part", ["router", "worker-0"])
async def test_17_bodies_of_60_mib_without_their_last_byte(
    up: UpProcess, http: aiohttp.ClientSession, part: str
) -> None:
    url = up.url if part == "router" else up.replicas()[part]["url"]
    usual = await alone(http, up)
    before = memory(up)
    body = post(COMPLETIONS, b'{"model":"%s","prompt":"%s"}' % (MODEL.encode(), b"x" * 60 * MIB))
    async with neighbour(http, up.url) as times, held(url, [body[:-1]] * 17):
        await undisturbed(http, up, usual, url)
    assert sorted(times)[len(times) // 2] <= usual + WAIT_S
    idle(up)
    assert not await shrinks_to(up, before)


@pytest.mark.long
async def test_40_costly_regexes_beside_a_choice_of_two_words(
    up: UpProcess, http: aiohttp.ClientSession
) -> None:
    choice = {"model": MODEL, "prompt": "x", "max_tokens": 4, "guided_choice": ["yes", "no"]}
    worker = up.replicas()["worker-0"]["url"]

    async def chosen() -> float:
        started = asyncio.get_running_loop().time()
        async with http.post(f"{worker}{COMPLETIONS}", json=choice) as answer:
            assert answer.status == 200, await answer.text()
            assert (await answer.json())["choices"][0]["text"] in ("yes", "no")
        return asyncio.get_running_loop().time() - started

    async def costly(n: int) -> tuple[int, Any]:
        body: dict[str, Any] = {"model": MODEL, "prompt": "x", "max_tokens": 1}
        body["guided_regex"] = f"(a{{1000}}b{n}){{1000}}"
        async with http.post(f"{worker}{COMPLETIONS}", json=body) as answer:
            return answer.status, await answer.json()

    usual = max([await chosen() for _ in range(5)])
    floods = asyncio.gather(*map(costly, range(40)))
    waits: list[float] = []
    while not floods.done() or len(waits) < ASKS:
        waits.append(await chosen())
    assert {status for status, _ in await floods} <= {400, 503}, await floods
    assert sorted(waits)[-TRIES] <= usual + WAIT_S, "a choice waits for no regex"
    idle(up)


@pytest.mark.long
async def test_200_clients_that_leave_in_the_middle(
    up: UpProcess, http: aiohttp.ClientSession
) -> None:
    """Of an upload of theirs, or of an answer."""
    usual = await alone(http, up)
    before = memory(up)
    streamed = {
        "model": MODEL,
        "prompt": "x",
        "max_tokens": 500,
        "stream": True,
        "ignore_eos": True,
    }
    for url in (up.url, up.replicas()["worker-0"]["url"]):
        async with neighbour(http, up.url) as times:
            upload = post(COMPLETIONS, b'{"model":"m","prompt":"%s"}' % (b"x" * MIB))
            answer = post(COMPLETIONS, json.dumps(streamed).encode())
            rounds = 0
            while rounds < 4 or len(times) < ASKS:
                async with held(url, [upload[: MIB // 2]] * 25):
                    pass
                async with held(url, [answer] * 25):
                    await asyncio.sleep(0)
                rounds += 1
        assert sorted(times)[-TRIES] <= usual + WAIT_S
        idle(up)
    assert not await shrinks_to(up, before)
