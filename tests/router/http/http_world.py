"""A world for tests of HTTP itself: the router's server or client at one end, raw bytes at
the other.

async with listening(echo) as port, Raw(port) as client:
    client.send(b"GET / HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n")
    assert (await client.answer()).status == 200
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, cast

from pando_fleet.current import Current
from pando_fleet.http.server.bodies import Bodies
from pando_fleet.http.server.incoming import Incoming
from pando_fleet.http.server.limits import ClientLimits
from pando_fleet.http.server.server import Handler, Server
from pando_router.http.limits import ReplicaLimits
from pando_router.http.upstream import Upstream
from tests.waiting import PATIENCE_S

SWEEP_S = 0.02
MAX_BODY_BYTES = 1_000_000
BODIES = Bodies(Current(1 << 30), Current(4096))


async def echo(request: Incoming) -> None:
    """Returns the request that it got."""
    body = await request.body(MAX_BODY_BYTES, BODIES)
    said = {"method": request.method, "target": request.target.decode(), "body": body.decode()}
    await request.send(200, [(b"content-type", b"application/json")], json.dumps(said).encode())


@asynccontextmanager
async def serving_http(
    handler: Handler,
    *,
    turned_away: Callable[[], object] = lambda: None,
    host: str = "127.0.0.1",
    share_port: bool = False,
    **limits: Any,
) -> AsyncIterator[tuple[Server, int]]:
    wanted = Current(ClientLimits(**limits))
    server = Server(handler, wanted, sweep_s=SWEEP_S, turned_away=turned_away)
    port = await server.listen(host, 0, share_port=share_port)
    try:
        yield server, port
    finally:
        await server.close(0.0)


@asynccontextmanager
async def listening(handler: Handler, **limits: Any) -> AsyncIterator[int]:
    async with serving_http(handler, **limits) as (_, port):
        yield port


@dataclass(frozen=True, slots=True)
class Said:
    """An answer, read by the rules of HTTP/1.1."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Raw:
    """A client that sends exactly these bytes."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def stop_reading(self) -> None:
        cast(asyncio.Transport, self.writer.transport).pause_reading()

    def resume_reading(self) -> None:
        cast(asyncio.Transport, self.writer.transport).resume_reading()

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(PATIENCE_S):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        version, code, _ = lines[0].split(" ", 2)
        assert version == "HTTP/1.1"
        pairs = [line.split(": ", 1) for line in lines[1:-2]]
        assert len({name for name, _ in pairs}) == len(pairs), f"a header came twice: {pairs}"
        return int(code), dict(pairs)

    async def answer(self, *, to_head: bool = False) -> Said:
        status, headers = await self.head()
        async with asyncio.timeout(PATIENCE_S):
            if to_head or status in (204, 304):
                body = b""
            elif "content-length" in headers:
                assert "transfer-encoding" not in headers
                body = await self.reader.readexactly(int(headers["content-length"]))
            elif headers.get("transfer-encoding") == "chunked":
                body = await self._chunks()
            else:
                body = await self.reader.read()
        return Said(status, headers, body)

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
        assert await self.reader.readexactly(2) == b"\r\n"
        return body

    async def closed(self) -> bool:
        """Whether the server ends the connection without another byte."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Worker:
    """A replica that runs its script on each connection."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._script(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Head and body of a request with a content-length."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return head, await reader.readexactly(length)


@asynccontextmanager
async def upstream(max_connections: int = 8, **timeouts: float) -> AsyncIterator[Upstream]:
    limits = ReplicaLimits(max_connections, **timeouts)
    client = Upstream(Current(limits), sweep_s=SWEEP_S)
    try:
        yield client
    finally:
        await client.close()
