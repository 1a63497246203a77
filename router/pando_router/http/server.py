"""Listens for clients and passes each request to one handler.

The number of connections is limited. To make room for a new one, the server closes idle
connections, the oldest first, as nginx does; if all are busy, it answers the new one with 503.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import islice

from pando_fleet.http.listener import EVERYWHERE, bound_everywhere
from pando_router.current import Current
from pando_router.http.connection import Connection
from pando_router.http.incoming import Incoming
from pando_router.http.limits import MAX_TURNED_AWAY, ROOM_FOR, ClientLimits
from pando_router.http.sweeper import Sweeper

SWEEP_S = 1.0
BACKLOG = 2048
LOOK_EVERY_S = 0.1  # how often to search for idle connections after finding none

Handler = Callable[[Incoming], Awaitable[None]]


class Server:
    """Serves `handler`, which may raise ApiError as its answer before it has started one."""

    def __init__(
        self,
        handler: Handler,
        limits: Current[ClientLimits],
        *,
        sweep_s: float = SWEEP_S,
        turned_away: Callable[[], object] = lambda: None,
    ) -> None:
        """`turned_away` is called for each connection that is refused for lack of room."""
        self.handler = handler
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.sweeper = Sweeper(sweep_s)
        self.draining = False  # answers then say `connection: close`
        self._connections: dict[Connection, None] = {}  # the oldest first
        self._going: set[Connection] = set()  # those being closed to make room, or refused
        self._turned_away = turned_away
        self._look_again_at = 0.0  # for idle connections
        self._empty = asyncio.Event()
        self._empty.set()
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int, *, share_port: bool = False) -> int:
        """Starts listening, and returns the port.

        `share_port` allows other processes on the port, by SO_REUSEPORT. Raises OSError.
        """
        if host == EVERYWHERE:
            everywhere = bound_everywhere(port, share_port=share_port)
            self._listener = await self.loop.create_server(
                lambda: Connection(self), sock=everywhere, backlog=BACKLOG
            )
        else:
            self._listener = await self.loop.create_server(
                lambda: Connection(self), host, port, backlog=BACKLOG, reuse_port=share_port or None
            )
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self, grace_s: float) -> None:
        """Stops listening, closes idle connections, and cuts the others after `grace_s` seconds."""
        self.draining = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close_if_idle()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        tasks = [task for connection in list(self._connections) if (task := connection.cancel())]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        self.sweeper.stop()

    @property
    def clients(self) -> int:
        """The number of connections, without those being closed."""
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
        """Closes idle connections. Returns whether there were any."""
        now = self.loop.time()
        if now < self._look_again_at:
            return False
        *others, _ = self._connections  # the last is the new one, for which room is made
        idle = (one for one in others if one not in self._going and one.close_if_idle())
        closed = list(islice(idle, ROOM_FOR))
        self._going.update(closed)
        if not closed:
            self._look_again_at = now + LOOK_EVERY_S
        return bool(closed)
