"""The server's side of HTTP/1.1: answers, and the ends of connections."""

import asyncio

import pytest

from pando_fleet.http.server.incoming import Incoming
from tests.router.http.http_requests import GET, post
from tests.router.http.http_world import Raw, echo, listening


async def test_head_has_the_length_but_not_the_body() -> None:
    async def handler(request: Incoming) -> None:
        await request.send(200, [], b"body")

    async with listening(handler) as port, Raw(port) as client:
        client.send(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n" + GET % b"/")
        answer = await client.answer(to_head=True)
        assert (answer.status, answer.headers["content-length"]) == (200, "4")
        assert (await client.answer()).body == b"body"


async def test_answer_without_a_length_is_chunked() -> None:
    async with listening(_three_pieces) as port, Raw(port) as client:
        client.send(GET % b"/" + GET % b"/")
        for _ in range(2):
            answer = await client.answer()
            assert answer.headers["transfer-encoding"] == "chunked"
            assert answer.body == b"onetwothree"


async def test_answer_without_a_length_ends_with_the_connection_in_http_1_0() -> None:
    async with listening(_three_pieces) as port, Raw(port) as client:
        client.send(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        answer = await client.answer()
        assert "transfer-encoding" not in answer.headers
        assert answer.headers["connection"] == "close"
        assert answer.body == b"onetwothree"


async def _three_pieces(request: Incoming) -> None:
    request.start(200, [])
    request.write(b"one")
    request.write(b"two")
    request.end(b"three")


async def test_http_1_0_keeps_alive_where_it_asks_to() -> None:
    async with listening(echo) as port, Raw(port) as client:
        client.send(b"GET /1 HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        assert (await client.answer()).headers["connection"] == "keep-alive"
        client.send(b"GET /2 HTTP/1.0\r\n\r\n")
        answer = await client.answer()
        assert (answer.json["target"], answer.headers["connection"]) == ("/2", "close")
        assert await client.closed()


async def test_connection_ends_where_the_client_says_so() -> None:
    async with listening(echo) as port, Raw(port) as client:
        client.send(post(b"connection: close", b"content-length: 0") + GET % b"/evil")
        assert (await client.answer()).headers["connection"] == "close"
        assert await client.closed()


async def test_answer_shorter_than_it_said_is_cut() -> None:
    async def short(request: Incoming) -> None:
        request.start(200, [], 10)
        request.end(b"short")

    async with listening(short) as port, Raw(port) as client:
        client.send(GET % b"/")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.answer()


async def test_handler_that_fails_says_so_or_cuts_what_it_began() -> None:
    async def fails(request: Incoming) -> None:
        if request.path == "/begun":
            request.start(200, [])
            request.write(b"part")
        raise ZeroDivisionError

    async with listening(fails) as port, Raw(port) as client:
        client.send(GET % b"/" + GET % b"/begun")
        answer = await client.answer()
        assert (answer.status, answer.json["error"]["type"]) == (500, "server_error")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.answer()
