"""Client connections are bounded: idle ones make room for new ones, busy ones do not."""

import asyncio
import gc
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import aiohttp
import openai
import pytest

from pando_fleet.http.server.connection import ClientConnection
from pando_fleet.http.server.incoming import Incoming
from tests.router.http.http_world import Raw, echo, serving_http
from tests.router.world import Stream, completion, fleet, until
from tests.waiting import PATIENCE_S

ASK = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def served(port: int) -> bool:
    async with Raw(port) as client:
        client.send(ASK)
        return (await client.answer()).status == 200


async def test_idle_connections_make_room_the_oldest_first() -> None:
    async with serving_http(echo, max_connections=3) as (server, port), AsyncExitStack() as stack:
        idle = [await stack.enter_async_context(Raw(port)) for _ in range(3)]
        for client in idle:
            client.send(ASK)
            assert (await client.answer()).status == 200
        for _ in range(10):
            newcomer = await stack.enter_async_context(Raw(port))
            newcomer.send(ASK)
            answer = await newcomer.answer()
            assert answer.status == 200
        assert await idle[0].closed()
        assert server.clients <= 3


async def test_busy_connections_stay_and_new_ones_are_refused() -> None:
    done = asyncio.Event()
    told = 0

    async def busy(request: Incoming) -> None:
        await done.wait()
        await request.send(200, [], b"done")

    def turned_away() -> None:
        nonlocal told
        told += 1

    async with (
        serving_http(busy, turned_away=turned_away, max_connections=2) as (server, port),
        Raw(port) as one,
        Raw(port) as other,
    ):
        for client in (one, other):
            client.send(ASK)
        await until(lambda: server.clients == 2, "two are served")
        async with Raw(port) as newcomer:
            newcomer.send(ASK)
            answer = await newcomer.answer()
            assert (answer.status, answer.json["error"]["code"]) == (503, "overloaded")
            assert answer.headers["retry-after"] == "1"
            assert answer.headers["connection"] == "close"
            assert await newcomer.closed()
        assert (told, server.clients) == (1, 2)
        done.set()
        for client in (one, other):
            assert (await client.answer()).body == b"done"
        # They are idle now, which the server checks every LOOK_EVERY_S.
        await until(lambda: served(port), "a later client is served")


async def test_clients_that_send_nothing_make_room_too() -> None:
    """Those that stop within their headers also keep others out only for the allowed time."""
    async with (
        serving_http(echo, max_connections=2, header_timeout=0.2) as (_, port),
        Raw(port),
        Raw(port),
        Raw(port) as client,
    ):
        client.send(ASK)
        assert (await client.answer()).status == 200
    async with (
        serving_http(echo, max_connections=2, header_timeout=3.0) as (server, port),
        Raw(port) as one,
        Raw(port) as other,
    ):
        for halting in (one, other):
            halting.send(ASK[:10])
        await until(lambda: server.clients == 2, "they are there")
        await until(lambda: served(port), "a request is served")


async def test_the_bound_is_a_setting_and_clients_libraries_understand_the_answer(
    valkey_url: str,
) -> None:
    async with fleet(valkey_url, "a", max_connections=1) as (router, [a]):
        a.answer = stream = Stream()
        port = urlsplit(router.url).port
        assert port is not None
        async with Raw(port) as busy:
            busy.send(
                b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 27\r\n\r\n"
                b'{"model":"m","prompt":"hi"}'
            )
            await asyncio.wait_for(stream.started.wait(), PATIENCE_S)
            async with (
                aiohttp.ClientSession() as client,
                client.get(router.url + "/v1/models") as answer,
            ):
                assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            async with openai.AsyncOpenAI(
                base_url=router.url + "/v1", api_key="none", max_retries=0
            ) as library:
                with pytest.raises(openai.InternalServerError, match="connections"):
                    await library.completions.create(model="m", prompt="hi")
            stream.end()
            assert (await busy.answer()).status == 200

        async def counted() -> bool:
            return await router.metric("pando_router_connections_refused_total") == 2

        await until(counted, "two connections were refused")
        assert await router.metric("pando_router_client_connections") == 1
        a.answer = a.say_name
        assert (await router.post("/v1/completions", completion())).status == 200


@pytest.mark.parametrize("end", ["resets", "half-closes", "leaves a body"])
async def test_a_closed_connection_waits_for_no_garbage_collection(end: str) -> None:
    async with serving_http(echo) as (_, port):
        gc.collect()
        gc.disable()
        try:
            async with Raw(port) as client:
                client.send(ASK)
                assert (await client.answer()).status == 200
                assert _connections() == 1
                if end == "leaves a body":
                    client.send(ASK.replace(b"GET", b"POST")[:-2] + b"content-length: 9\r\n\r\na")
                if end == "half-closes":
                    client.writer.write_eof()
            await until(lambda: _connections() == 0, "nothing refers to the connection")
        finally:
            gc.enable()


def _connections() -> int:
    return sum(type(one) is ClientConnection for one in gc.get_objects())
