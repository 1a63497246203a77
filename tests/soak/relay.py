"""A connection that can be cut: a TCP port before a server that passes, holds or drops data."""

import asyncio
from enum import Enum
from typing import Self


class Wire(Enum):
    PASSES = "passes"
    HOLDS = "holds"  # no byte passes in either direction, connections stay
    DROPS = "drops"  # connections break, and new ones are closed at once


class Relay:
    def __init__(self, port: int) -> None:
        self._target = port
        self._passes = asyncio.Event()
        self._passes.set()
        self._dropping = False
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.set(Wire.DROPS)

    def set(self, wire: Wire) -> None:
        self._dropping = wire is Wire.DROPS
        if wire is Wire.HOLDS:
            self._passes.clear()
        else:
            self._passes.set()
        if self._dropping:
            for writer in self._writers:
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._dropping:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self._writers |= both
        try:
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
        finally:
            self._writers -= both
            for each in both:
                each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes data until either end closes, then closes both, as nothing here uses half-open
        ones."""
        try:
            while data := await reader.read(65536):
                await self._passes.wait()
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()
