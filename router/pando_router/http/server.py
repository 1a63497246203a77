"""Listens for clients and gives each of their requests to one handler."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from pando_router.http.connection import Connection
from pando_router.http.incoming import Incoming
from pando_router.http.limits import Limits
from pando_router.http.sweeper import Sweeper

SWEEP_S = 1.0
BACKLOG = 2048

Handler = Callable[[Incoming], Awaitable[None]]


class Server:
    """A handler at work. It may raise ApiError, which becomes the answer where none was begun."""

    def __init__(self, handler: Handler, limits: Limits, *, sweep_s: float = SWEEP_S) -> None:
        self.handler = handler
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.sweeper = Sweeper(sweep_s)
        self.draining = False  # answers then say `connection: close`
        self._connections: set[Connection] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int, *, share_port: bool = False) -> int:
        """The port that it listens on. `share_port`: with other processes, by SO_REUSEPORT.

        Raises OSError.
        """
        self._listener = await self.loop.create_server(
            lambda: Connection(self), host, port, backlog=BACKLOG, reuse_port=share_port or None
        )
        return int(self._listener.sockets[0].getsockname()[1])

    def adopt(self, limits: Limits) -> None:
        """Other limits hold for new connections."""
        self.limits = limits

    async def close(self, grace_s: float) -> None:
        """Listens no more, closes what is idle, and cuts after `grace_s` what is not done."""
        self.draining = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close_where_idle()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        tasks = [task for connection in list(self._connections) if (task := connection.cancel())]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        self.sweeper.stop()

    def opened(self, connection: Connection) -> None:
        self._connections.add(connection)
        self._empty.clear()
        self.sweeper.add(connection)

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.sweeper.discard(connection)
        if not self._connections:
            self._empty.set()
