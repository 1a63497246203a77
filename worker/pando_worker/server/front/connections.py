"""Client connections: uvicorn's, with limits on their number and on how long one may read nothing.

A new connection that finds no room replaces the one that has been idle longest. Some connections
are reserved for probes and metrics; other requests get 503 on them, so a probe is always answered.
"""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pando_fleet.http.open_files import OTHER_FILES, allow_open_files
from pando_worker.server.front.startup import CannotStartError

log = logging.getLogger("pando.worker")

CROWDED = "crowded"  # key in a request's state: its connection is reserved for probes
SPARE = 32  # connections reserved for probes
LEAST = 2 * SPARE
SWEEP_S = 1.0
QUIET_S = 60.0  # minimum time between two log lines about closed connections


def fitting_connections(wanted: int) -> int:
    """The wanted number of connections, or fewer if the limit of open files is lower.

    Raises CannotStartError if the limit leaves too few to work with.
    """
    files = allow_open_files()
    here = sum(1 for _ in Path("/proc/self/fd").iterdir())
    most = min(wanted, files - here - OTHER_FILES)
    if most < LEAST:
        raise CannotStartError(
            f"this process may open {files} files, which leaves {most} for connections;"
            f" raise the limit (ulimit -n) to at least {LEAST + here + OTHER_FILES}"
        )
    return most


class Connections:
    """All connections of a server. Create it in the server's event loop."""

    def __init__(self, most: int, write_timeout_s: float) -> None:
        self._most = most
        self._write_timeout_s = write_timeout_s
        self._loop = asyncio.get_running_loop()
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}  # idle, the longest first
        self._quiet_until = 0.0
        self._left = asyncio.Event()  # set when one is closed

    @property
    def crowded(self) -> bool:
        """Whether only connections reserved for probes are free."""
        return len(self._open) - len(self._waiting) > self._most - SPARE

    async def watch(self) -> None:
        """Cut connections whose clients read nothing. Runs as long as the server."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now = self._loop.time()
            cut = [one for one in self._open if one.stalled_s(now) > self._write_timeout_s]
            for connection in cut:
                connection.cut()
            if cut:
                log.warning(
                    "cut connections whose clients read nothing of their answers for %g s",
                    self._write_timeout_s,
                    extra={"connections": len(cut)},
                )

    async def close(self, grace_s: float) -> None:
        """Close all connections; those with unsent answers get `grace_s` seconds to send them.

        Call it after the server has stopped listening."""
        for connection in self._open:
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self._open:
                    self._left.clear()
                    await self._left.wait()
        for connection in self._open:
            connection.cut()

    def opened(self, connection: "Connection") -> None:
        self._open.add(connection)
        if len(self._open) > self._most:
            next(iter(self._waiting), connection).cut()
            self._say_full()
        if not connection.transport.is_closing():
            self.waits(connection)

    def closed(self, connection: "Connection") -> None:
        self._open.discard(connection)
        self._waiting.pop(connection, None)
        self._left.set()

    def waits(self, connection: "Connection") -> None:
        self._waiting[connection] = None

    def serves(self, connection: "Connection") -> None:
        self._waiting.pop(connection, None)

    def _say_full(self) -> None:
        now = self._loop.time()
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET_S
            log.warning(
                "%d connections are open, the most that max_connections and the limit of open"
                " files allow: closing those that have been idle longest",
                self._most,
            )


class Connection(HttpToolsProtocol):
    def __init__(self, connections: Connections, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._all = connections
        self._unsent_bytes = 0
        self._taken_at = self.loop.time()  # when the client last read something, or had read all

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._all.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._all.closed(self)

    def on_headers_complete(self) -> None:
        self._all.serves(self)
        self.scope["state"][CROWDED] = self._all.crowded
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._all.waits(self)

    def stalled_s(self, now: float) -> float:
        """Seconds for which the client has read nothing although data was ready."""
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent < self._unsent_bytes:
            self._taken_at = now
        self._unsent_bytes = unsent
        return now - self._taken_at

    def cut(self) -> None:
        """Close at once and drop unsent data."""
        self._all.serves(self)
        self.transport.abort()
