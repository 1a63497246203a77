"""redis-py's connections with two additions: they abandon a server that is no longer a master, and
they reload certificates whose files have changed.
"""

import ssl
from pathlib import Path
from typing import Any

from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.sentinel import SentinelManagedConnection
from redis.exceptions import BusyLoadingError, MasterDownError, ReadOnlyError, ResponseError

from pando_fleet.redis.refusals import WRONG_SERVER, refusal_word


class Route:
    """Which of a pool's connections may be used: those opened since the last `leave`.

    After a managed failover the URL's name leads to the new master, but connections to the old one
    stay open: it answers reads for ever, and refuses writes.
    """

    def __init__(self) -> None:
        self.turn = 0

    def leave(self) -> None:
        """Makes each connection look up the server again before its next command."""
        self.turn += 1


class MasterConnection(AbstractConnection):
    """Leads to a master: a refusal that shows otherwise makes all connections of the route leave.

    The refusal itself is raised as redis-py would, so that its `Retry` decides about another try.
    """

    def __init__(self, *, route: Route, **settings: Any) -> None:
        super().__init__(**settings)
        self._route = route
        self._turn = route.turn

    async def connect(self) -> None:
        # Only its user closes a connection: redis-py's pool closes idle connections while another
        # task may be taking one of them, which would lose the socket that it has just opened.
        if self._turn != self._route.turn:
            await self.disconnect()
        await super().connect()  # type: ignore[no-untyped-call]

    async def _connect(self) -> None:
        self._turn = self._route.turn
        await super()._connect()  # type: ignore[no-untyped-call, safe-super]

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        # redis-py's own reconnection here does not ask Sentinels for the current master.
        if not self.is_connected:
            await self.connect()
        await super().send_packed_command(*args, **options)

    async def read_response(self, *args: Any, **options: Any) -> Any:
        # Not `super()`: Sentinel's connection also handles READONLY, but only for itself.
        try:
            return await AbstractConnection.read_response(self, *args, **options)
        except (ResponseError, BusyLoadingError) as error:
            if isinstance(error, _WRONG_SERVER_ERRORS):
                self._route.leave()
            elif refusal_word(str(error)) in WRONG_SERVER:
                self._route.leave()
                raise ReadOnlyError(str(error)) from error
            raise


_WRONG_SERVER_ERRORS = (ReadOnlyError, MasterDownError, BusyLoadingError)


class CertifiedConnection(SSLConnection):
    """Reloads its certificates before it connects if one of their files has changed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._read: list[object] = []

    def context(self) -> ssl.SSLContext:
        """Raises OSError, with the names of the files, if they cannot be read."""
        made_from, default = self.ssl_context, ssl.get_default_verify_paths()
        files = (made_from.ca_certs, made_from.certfile, made_from.keyfile, default.cafile)
        found = [_version(file) for file in files if file]
        if found != self._read:
            made_from.context = None
        try:
            context = made_from.get()
        except OSError as error:  # includes ssl.SSLError
            named = ", ".join(file for file in files[:3] if file)
            raise OSError(
                f"the Redis URL's certificates cannot be read: {error}: {named}"
            ) from error
        self._read = found
        return context

    async def _connect(self) -> None:
        self.context()
        await super()._connect()  # type: ignore[no-untyped-call]


def _version(file: str) -> object:
    """Changes with each replacement; Kubernetes replaces the folder that a link points to."""
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


class TcpMaster(MasterConnection, Connection):
    pass


class TlsMaster(MasterConnection, CertifiedConnection):
    pass


class UnixMaster(MasterConnection, UnixDomainSocketConnection):
    pass


class SentinelMaster(MasterConnection, SentinelManagedConnection):
    pass


class SentinelTlsMaster(MasterConnection, SentinelManagedConnection, CertifiedConnection):
    pass
