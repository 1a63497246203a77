"""Listens for clients and passes each request to one handler.

The number of connections is limited. To make room for a new one, the server closes idle
connections, the oldest first, as nginx does. If none is idle, it cuts the oldest one that still
sends its request, of the address that has most of these. If all serve requests, the new one is
answered with 503.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import islice

from pando_fleet.current import Current
from pando_fleet.http.listener import EVERYWHERE, bound_everywhere
from pando_fleet.http.server.connection import ClientConnection
from pando_fleet.http.server.incoming import Incoming
from pando_fleet.http.server.limits import MAX_TURNED_AWAY, ROOM_FOR, ClientLimits
from pando_fleet.http.server.sweeper import Sweeper

SWEEP_S = 1.0
BACKLOG = 2048
LOOK_EVERY_S = 0.1  # how often to search for idle connections after finding none
QUIET_S = 60.0  # between two log lines that say the same

logger = logging.getLogger("pando.http")

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
        reserved: int = 0,
    ) -> None:
        """
        Args:
            turned_away: called for each connection that is refused for lack of room
            reserved: connections kept free for probes; the handler sees `Incoming.crowded` on
                them, and should refuse everything else
        """
        self.handler = handler
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.sweeper = Sweeper(sweep_s)
        self.draining = False  # answers then say `connection: close`
        self._connections: dict[ClientConnection, None] = {}  # the oldest first
        self._going: set[ClientConnection] = set()  # those being closed to make room, or refused
        self._turned_away = turned_away
        self._reserved = reserved
        self.serving = 0
        self._quiet_until: dict[str, float] = {}  # by log message
        self._look_again_at = 0.0  # for idle connections
        self._empty = asyncio.Event()
        self._empty.set()
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int, *, share_port: bool = False) -> int:
        """Starts listening, and returns the port.

        `share_port` allows other processes on the port, by SO_REUSEPORT. Raises OSError.
        """
        if host == EVERYWHERE:
            await self.serve(bound_everywhere(port, share_port=share_port))
        else:
            self._listener = await self.loop.create_server(
                lambda: ClientConnection(self),
                host,
                port,
                backlog=BACKLOG,
                reuse_port=share_port or None,
            )
        assert self._listener is not None
        return int(self._listener.sockets[0].getsockname()[1])

    async def serve(self, listener: socket.socket) -> None:
        """Starts listening at a bound socket."""
        self._listener = await self.loop.create_server(
            lambda: ClientConnection(self), sock=listener, backlog=BACKLOG
        )

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
    def crowded(self) -> bool:
        """Whether only the reserved connections are free."""
        return self.serving > self.limits.now.max_connections - self._reserved

    @property
    def clients(self) -> int:
        """The number of connections, without those being closed."""
        return len(self._connections) - len(self._going)

    def opened(self, connection: ClientConnection) -> None:
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

    def stalled(self) -> None:
        self._warn(
            "cut a connection whose client read nothing of its answer for %g s",
            self.limits.now.write_timeout,
        )

    def _warn(self, message: str, number: float) -> None:
        """Logs the message, unless it was logged lately."""
        now = self.loop.time()
        if now >= self._quiet_until.get(message, 0.0):
            self._quiet_until[message] = now + QUIET_S
            logger.warning(message, number)

    def closed(self, connection: ClientConnection) -> None:
        self._connections.pop(connection, None)
        self._going.discard(connection)
        self.sweeper.discard(connection)
        if not self._connections:
            self._empty.set()

    def _make_room(self) -> bool:
        """Closes connections that serve no request. Returns whether there were any."""
        now = self.loop.time()
        if now < self._look_again_at:
            return False
        *others, _ = self._connections  # the last is the new one, for which room is made
        staying = [one for one in others if one not in self._going]
        closed = list(islice((one for one in staying if one.close_if_idle()), ROOM_FOR))
        self._going.update(closed)
        if closed:
            self._warn(
                "%d connections are open, the most that max_connections and the limit of open files"
                " allow: closing those that have been idle longest",
                self.limits.now.max_connections,
            )
        if not closed and (slow := _oldest_sender(staying)):
            slow.abort()
            return True
        if not closed:
            self._look_again_at = now + LOOK_EVERY_S
        return bool(closed)


def _oldest_sender(connections: list[ClientConnection]) -> ClientConnection | None:
    """Of those that still send a request, the oldest one of the address that has most."""
    by_address: dict[str, list[ClientConnection]] = {}
    for one in connections:
        if one.receives:
            by_address.setdefault(one.address, []).append(one)
    if not by_address:
        return None
    most = max(by_address.values(), key=len)
    return most[0]
