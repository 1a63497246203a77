"""Replicas that answer with raw bytes, and requests to them."""

import asyncio

from pando_router.http.answer import Answer
from pando_router.http.upstream import Upstream
from tests.router.http.http_world import Script, Worker, read_request
from tests.waiting import PATIENCE_S

OK = b"HTTP/1.1 200 OK\r\n"

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


def says(answer: bytes, *, close: bool = False) -> Script:
    """Gives this answer to every request of a connection; `close` ends it after the first."""

    async def script(reader: Reader, writer: Writer) -> None:
        while True:
            await read_request(reader)
            writer.write(answer)
            if close:
                return

    return script


async def whole(answer: Answer) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await answer.whole(1 << 30)


async def post(client: Upstream, worker: Worker, body: bytes = b"body") -> Answer:
    async with asyncio.timeout(PATIENCE_S):
        return await client.post(worker.url, b"/v1/x?y=z", [(b"x-sent", b"yes")], body)
