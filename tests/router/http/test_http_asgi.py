"""ASGI apps behind the router's server."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

from pando_fleet.current import Current
from pando_fleet.http.server.asgi import AsgiHandler
from tests.router.http.http_world import BODIES, Raw, listening
from tests.waiting import PATIENCE_S

GET = b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n"


async def test_app_sees_the_request_and_its_answer_arrives() -> None:
    app = FastAPI()

    @app.post("/a b/{name}")
    async def said(request: Request, name: str, q: str) -> dict[str, object]:
        body = (await request.body()).decode()
        return {"name": name, "q": q, "body": body, "client": request.client is not None}

    async with listening(AsgiHandler(app, Current(100), BODIES)) as port, Raw(port) as client:
        client.send(
            b"POST /a%20b/x?q=%C3%A9 HTTP/1.1\r\nhost: x\r\nx-request-id: r1\r\n"
            b"content-length: 2\r\n\r\nhi"
        )
        answer = await client.answer()
        assert answer.status == 200
        assert answer.json == {"name": "x", "q": "é", "body": "hi", "client": True}
        assert answer.headers["x-request-id"] == "r1"
        client.send(GET % b"/nothing")
        unknown = await client.answer()
        assert (unknown.status, len(unknown.headers["x-request-id"])) == (404, 32)


async def test_body_above_the_bound_never_reaches_the_app() -> None:
    async with listening(AsgiHandler(FastAPI(), Current(100), BODIES)) as port, Raw(port) as client:
        client.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 101\r\n\r\n")
        assert (await client.answer()).status == 413


async def test_streamed_answer_arrives_piece_by_piece() -> None:
    app = FastAPI()
    go_on = asyncio.Event()

    @app.get("/")
    async def stream() -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"one"
            await go_on.wait()
            yield b"two"

        return StreamingResponse(pieces())

    async with listening(AsgiHandler(app, Current(100), BODIES)) as port, Raw(port) as client:
        client.send(GET % b"/")
        await client.head()
        assert await client.reader.readexactly(8) == b"3\r\none\r\n"
        go_on.set()
        assert await client.reader.readexactly(13) == b"3\r\ntwo\r\n0\r\n\r\n"


async def test_stream_ends_when_its_client_leaves() -> None:
    app = FastAPI()
    ended = asyncio.Event()

    @app.get("/")
    async def stream() -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            try:
                yield b"one"
                await asyncio.Event().wait()
            finally:
                ended.set()

        return StreamingResponse(pieces())

    async with listening(AsgiHandler(app, Current(100), BODIES)) as port:
        async with Raw(port) as client:
            client.send(GET % b"/")
            await client.head()
        async with asyncio.timeout(PATIENCE_S):
            await ended.wait()


async def test_app_that_fails_answers_500_and_the_connection_goes_on() -> None:
    app = FastAPI()

    @app.get("/")
    async def fails() -> None:
        raise ZeroDivisionError

    async with listening(AsgiHandler(app, Current(100), BODIES)) as port, Raw(port) as client:
        for _ in range(2):
            client.send(GET % b"/")
            assert (await client.answer()).status == 500
