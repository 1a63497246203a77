"""Listens for clients and gives each of their requests to one handler.

Connections are bounded. Where there is no room for a new one, those go that wait for a request,
the oldest first, as nginx does it; where all are busy the new one is told 503.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import islice

from pando_router.current import Current
from pando_router.http.connection import Connection
from pando_router.http.incoming import Incoming
from pando_router.http.limits import MAX_TURNED_AWAY, ROOM_FOR, Limits
from pando_router.http.sweeper import Sweeper

SWEEP_S = 1.0
BACKLOG = 2048
LOOK_EVERY_S = 0.1  # for idle connections to close, where there were none

Handler = Callable[[Incoming], Awaitable[None]]


class Server:
    """A handler at work. It may raise ApiError, which becomes the answer where none was begun."""

    def __init__(
        self,
        handler: Handler,
        limits: Current[Limits],
        *,
        sweep_s: float = SWEEP_S,
        turned_away: Callable[[], object] = lambda: None,
    ) -> None:
        """`turned_away` is called for each connection for which there is no room."""
        self.handler = handler
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.sweeper = Sweeper(sweep_s)
        self.draining = False  # answers then say `connection: close`
        self._connections: dict[Connection, None] = {}  # the oldest first
        self._going: set[Connection] = set()  # of them, to make room or turned away
        self._turned_away = turned_away
        self._look_again_at = 0.0  # for idle ones
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

    @property
    def clients(self) -> int:
        """Connections, without those that are about to go."""
        return len(self._connections) - len(self._going)

    def opened(self, connection: Connection) -> None:
        self._connections[connection] = None
        self._empty.clear()
        self.sweeper.add(connection)
        if self.clients <= self.limits.now.max_connections or self._make_room():
            return
        self._turned_away()
        self._going.add(connection)
        if len(self._going) <= MAX_TURNED_AWAY:
            connection.turn_away()
        else:
            connection.abort()

    def closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._going.discard(connection)
        self.sweeper.discard(connection)
        if not self._connections:
            self._empty.set()

    def _make_room(self) -> bool:
        """Whether a connection that waits for a request was there to be closed."""
        now = self.loop.time()
        if now < self._look_again_at:
            return False
        *others, _ = self._connections  # the last one is who it is for
        idle = (one for one in others if one not in self._going and one.close_where_idle())
        closed = list(islice(idle, ROOM_FOR))
        self._going.update(closed)
        if not closed:
            self._look_again_at = now + LOOK_EVERY_S
        return bool(closed)
