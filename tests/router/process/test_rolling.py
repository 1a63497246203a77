"""Routers behind one address are replaced one at a time, and no client notices."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial

import aiohttp
import pytest
from aiohttp import web

from tests.router.balancer import PROBE_S, Balancer
from tests.router.process.router_process import router_process
from tests.router.world import Replica, completion, until

pytestmark = pytest.mark.e2e

LEAVE_S = 30 * PROBE_S  # a busy machine probes late
EVENTS = 30
EVENT_S = 0.02


async def answer(request: web.Request) -> web.StreamResponse:
    if not (await request.json()).get("stream"):
        return web.json_response({"done": True})
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    for number in range(EVENTS):
        await response.write(b"data: %d\n\n" % number)
        await asyncio.sleep(EVENT_S)
    return response


def _more_than(before: int, ends: Counter[str]) -> bool:
    return ends["right"] > before


WHOLE = b'{"done": true}'
STREAM = b"".join(b"data: %d\n\n" % number for number in range(EVENTS))


async def client(port: int, stream: bool, stop: asyncio.Event, ends: Counter[str]) -> None:
    """Sends requests over one connection as long as the router keeps it open."""
    url = f"http://127.0.0.1:{port}/v1/completions"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
        while not stop.is_set():
            try:
                async with session.post(url, json=completion(stream=stream)) as said:
                    body = await said.read()
                    right = said.status == 200 and body == (STREAM if stream else WHOLE)
                    ends["right" if right else f"{said.status} {body!r}"] += 1
            except aiohttp.ClientError as error:
                ends[repr(error)] += 1


async def test_routers_are_replaced_under_load_without_a_failed_request(valkey_url: str) -> None:
    async with (
        AsyncExitStack() as stack,
        Replica(valkey_url, "a") as a,
        Replica(valkey_url, "b") as b,
        Balancer() as balancer,
    ):
        a.answer = b.answer = answer

        async def started() -> tuple[asyncio.subprocess.Process, int]:
            child, router = await stack.enter_async_context(
                router_process(valkey_url, leave_seconds=LEAVE_S)
            )
            balancer.add(router.port)
            await until(lambda: router.port in balancer.ready, "the balancer seeing the router")
            return child, router.port

        routers = [await started(), await started()]
        stop, ends = asyncio.Event(), Counter[str]()
        async with asyncio.TaskGroup() as group:
            for number in range(12):
                group.create_task(client(balancer.port, number % 2 == 0, stop, ends))
            for child, port in routers:
                await started()
                before = ends["right"]
                child.terminate()
                await until(partial(_more_than, before, ends), "requests going on")
                assert await child.wait() == 0
                balancer.remove(port)
            before = ends["right"]
            await until(lambda: ends["right"] > before + 50, "requests at the new routers")
            stop.set()
        assert ends.keys() == {"right"}, ends
