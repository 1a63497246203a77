"""The connections to one replica; idle ones are reused, the latest first."""

import asyncio
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from pando_fleet.current import Current
from pando_fleet.http.server.sweeper import Sweeper
from pando_router.http.answer import NoConnectionError, ReplicaFailedError
from pando_router.http.limits import ReplicaLimits
from pando_router.http.replica_connection import ReplicaConnection

# Below uvicorn's 5 s, so that a replica does not close a connection just as a request is sent.
KEEP_ALIVE_S = 4.0


@dataclass(frozen=True, slots=True)
class Origin:
    """The parts of a replica's URL."""

    tls: bool
    host: str
    port: int
    authority: bytes  # for the `host` header
    path: bytes  # the prefix of every target, without a trailing slash


def origin_of(url: str) -> Origin:
    """Parses a URL. Raises ValueError, with a reason, if it is not a valid http or https URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError("it must start with http:// or https://")
    if not parts.hostname:
        raise ValueError("it has no host")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("it has more than a scheme, a host, a port and a path")
    tls = parts.scheme == "https"
    # `netloc` keeps an IPv6 address's brackets and a port that was given.
    authority = parts.netloc.encode("idna" if not parts.netloc.isascii() else "ascii")
    path = parts.path.rstrip("/").encode("ascii")
    if any(byte <= 0x20 or byte == 0x7F for byte in authority + path):
        raise ValueError("it contains a space or a control character")
    return Origin(tls, parts.hostname, parts.port or (443 if tls else 80), authority, path)


class Pool:
    """The connections to one origin; `url` is in `full` while none is free."""

    def __init__(
        self,
        url: str,
        origin: Origin,
        sweeper: Sweeper,
        limits: Current[ReplicaLimits],
        full: set[str],
    ) -> None:
        self._url = url
        self._full = full
        self.origin = origin
        self.loop = asyncio.get_running_loop()
        self.sweeper = sweeper
        self.limits = limits
        self._tls = ssl.create_default_context() if origin.tls else None
        self._idle: dict[ReplicaConnection, None] = {}  # in the order of their last use
        self._open: set[ReplicaConnection] = set()
        self._connecting = 0

    @property
    def is_unused(self) -> bool:
        return not self._open and not self._connecting

    def take(self) -> ReplicaConnection | None:
        """An idle connection, which the replica may be closing; None if there is none."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.usable:
                return connection
        return None

    def put(self, connection: ReplicaConnection) -> None:
        """Takes back a connection whose answer is done."""
        connection.idle_until = self.sweeper.soon + KEEP_ALIVE_S
        self._idle[connection] = None
        self._full.discard(self._url)

    async def connect(self, *, bounded: bool) -> ReplicaConnection:
        """Opens a connection.

        Raises ReplicaFailedError; if `bounded` and at `max_connections`, NoConnectionError.
        """
        limits = self.limits.now
        if bounded and len(self._open) + self._connecting >= limits.max_connections:
            self._full.add(self._url)
            raise NoConnectionError(f"all {limits.max_connections} connections to it are in use")
        origin, within = self.origin, limits.connect
        self._connecting += 1
        try:
            async with asyncio.timeout(within):
                _, connection = await self.loop.create_connection(
                    lambda: ReplicaConnection(self),
                    origin.host,
                    origin.port,
                    ssl=self._tls,
                    server_hostname=origin.host if self._tls else None,
                )
        except TimeoutError as error:
            raise ReplicaFailedError(f"accepted no connection within {within:g} s") from error
        except OSError as error:  # refused, name not resolved, or certificate not trusted
            raise ReplicaFailedError(str(error) or type(error).__name__) from error
        finally:
            self._connecting -= 1
            self._full.discard(self._url)
        return connection

    def drop_idle(self) -> None:
        for connection in list(self._idle):
            connection.abort()
        self._idle.clear()

    def abandon(self, why: str, silent_s: float) -> int:
        """See `Upstream.abandon`."""
        return sum([connection.abandon(why, silent_s) for connection in list(self._open)])

    def close(self) -> None:
        for connection in list(self._open):
            connection.abort()

    def opened(self, connection: ReplicaConnection) -> None:
        self._open.add(connection)
        self.sweeper.add(connection)

    def closed(self, connection: ReplicaConnection) -> None:
        self._idle.pop(connection, None)
        self._open.discard(connection)
        self._full.discard(self._url)
        self.sweeper.discard(connection)
