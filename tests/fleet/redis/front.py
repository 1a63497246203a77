"""A proxy between a client and its server: an address that can be redirected, TLS, delay."""

import asyncio
import ssl
from contextlib import suppress
from typing import Self

import trustme


class Front:
    """The loopback `port` that leads to the server at `target`.

    Like a changed DNS address, another `target` applies to new connections only. Data from the
    server is delayed by `delay_s`.
    """

    def __init__(self, target: int, ca: trustme.CA | None = None, delay_s: float = 0.0) -> None:
        """With a `ca` it uses TLS, with a certificate for 127.0.0.1 by that authority."""
        self.target = target
        self.port = 0
        self.delay_s = delay_s
        self.received = 0  # pieces from clients
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if ca else None
        self._open: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()
        if ca:
            self.show(ca)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def show(self, ca: trustme.CA) -> None:
        """Switches to a certificate by another authority."""
        assert self._tls is not None
        ca.issue_cert("127.0.0.1").configure_cert(self._tls)

    def cut(self) -> None:
        """Breaks all connections."""
        for writer in self._open:
            writer.transport.abort()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await self._server.wait_closed()
        if self._serving:
            await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self._open |= {writer, to_server}
        try:
            await asyncio.gather(self._there(reader, to_server), self._back(from_server, writer))
        finally:
            self._open -= {writer, to_server}

    async def _there(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, ssl.SSLError):
            while data := await reader.read(65536):
                self.received += 1
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop, due = asyncio.get_running_loop(), 0.0
        with suppress(ConnectionError, ssl.SSLError):
            while data := await reader.read(65536):
                due = max(due + 1e-6, loop.time() + self.delay_s)  # in their order
                loop.call_at(due, writer.write, data)
        loop.call_at(due, writer.close)
