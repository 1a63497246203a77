"""A replica's answer: its head, and its body as it arrives."""

import asyncio
from typing import Protocol

from pando_router.http.headers import NOT_RETURNED, Headers, without

MAX_UNREAD_BYTES = 256 * 1024  # above it the replica's connection is not read
MAX_DIGITS = 15  # of a number in a header: a double, such as a metric, holds it exactly


class ReplicaFailedError(Exception):
    """The replica did not answer, or could not take the request; the message says which.

    `status` is that of its answer, None where there was none.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ReplicaLostError(ReplicaFailedError):
    """The replica is known to be lost, though its connection stands."""


class ReplicaSilentError(Exception):
    """The replica took the request and sent nothing for longer than it may."""


class Source(Protocol):
    """The connection that an answer comes on."""

    def read_on(self) -> None: ...

    def abort(self) -> None: ...


class NoConnectionError(Exception):
    """This router has as many connections to the replica as it may have, and all are in use.

    That says nothing of the replica: it was not asked.
    """


class Answer:
    """An answer to be `read`. To be closed, whatever happens."""

    __slots__ = (
        "_connection",
        "_loop",
        "_named",
        "_unread",
        "_waiter",
        "complete_on_wire",
        "error",
        "first_chunk",
        "is_event_stream",
        "raw_headers",
        "status",
        "unread_bytes",
    )

    def __init__(self, connection: Source, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0  # until the head has come
        self.raw_headers: Headers = []
        self.first_chunk = b""
        self.complete_on_wire = False
        self.error: Exception | None = None
        self.is_event_stream = False  # to whose body an event can be appended
        self._named: dict[bytes, bytes] = {}  # of each name the first header, once it is open
        self._connection: Source | None = connection
        self._loop = loop
        self._unread: list[bytes] = []
        self.unread_bytes = 0
        self._waiter: asyncio.Future[None] | None = None  # of a `read` that waits

    def headers(self) -> Headers:
        """End-to-end headers, without those that the router adds itself."""
        return without(self.raw_headers, NOT_RETURNED, self.header(b"connection"))

    def header(self, name: bytes, missing: bytes = b"") -> bytes:
        """The first header of that name, which is in lower case."""
        return self._named.get(name, missing)

    def count(self, name: bytes) -> int | None:
        """A header that holds a number; None where it is missing or holds something else."""
        value = self._named.get(name, b"")
        return int(value) if value.isdigit() and len(value) <= MAX_DIGITS else None

    @property
    def complete(self) -> bool:
        """Whether the whole body was read."""
        return self.complete_on_wire and not self._unread

    async def read(self) -> bytes:
        """The next bytes as they arrive, empty at the end. Raises the error that ends it instead,
        such as ReplicaFailedError."""
        unread = self._unread
        while not unread:
            if self.complete_on_wire:
                return b""
            if self.error is not None:
                raise self.error
            self._waiter = self._loop.create_future()
            await self._waiter
        chunk = unread[0] if len(unread) == 1 else b"".join(unread)
        unread.clear()
        if self.unread_bytes > MAX_UNREAD_BYTES and self._connection is not None:
            self._connection.read_on()
        self.unread_bytes = 0
        return chunk

    async def whole(self, most: int) -> bytes:
        """The whole body; of one longer than `most` bytes a beginning that is longer than that.

        The answer is closed then. Raises ReplicaFailedError.
        """
        parts = [self.first_chunk]
        size = len(self.first_chunk)
        try:
            while not self.complete and size <= most:
                parts.append(await self.read())
                size += len(parts[-1])
            return b"".join(parts)
        finally:
            self.close()

    async def open(self) -> None:
        """Reads the first bytes of the body, or its end, and with them the headers."""
        self.first_chunk = await self.read()
        self._named = named = dict(reversed(self.raw_headers))
        self.is_event_stream = (
            named.get(b"content-type", b"").startswith(b"text/event-stream")
            and named.get(b"content-encoding", b"identity") == b"identity"
        )

    def close(self) -> None:
        """Ends the request: a replica that is not done sees its connection close."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    # -- the connection's side -----------------------------------------------------------------

    def feed(self, chunk: bytes) -> None:
        self._unread.append(chunk)
        self.unread_bytes += len(chunk)
        self._wake()

    def ended(self, error: Exception | None = None) -> None:
        """The body is complete, or ends with an error. The connection has nothing more for this
        answer, and may have another soon."""
        self._connection = None
        self.error = error
        self.complete_on_wire = error is None
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():  # else who waited was cancelled
            waiter.set_result(None)
