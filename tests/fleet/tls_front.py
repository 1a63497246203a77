"""TLS in front of a server that has none: an encrypted port whose bytes go on in the clear."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trustme


@asynccontextmanager
async def tls_front(port: int, ca: trustme.CA) -> AsyncIterator[int]:
    """The port at which 127.0.0.1:`port` is reached by TLS, as a host that `ca` vouches for."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_pipe(reader, server_writer))
            tasks.create_task(_pipe(server_reader, writer))

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    server = await asyncio.start_server(serve, "127.0.0.1", ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError, ssl.SSLError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
