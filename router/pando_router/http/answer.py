"""A replica's answer: its head, and its body as it arrives."""

import asyncio
from typing import Protocol

from pando_fleet.http.server.headers import Headers
from pando_router.http.headers import NOT_RETURNED, without

MAX_UNREAD_BYTES = 256 * 1024  # above it, reading from the replica pauses
MAX_DIGITS = 15  # of a number in a header, so that a double, such as a metric, holds it exactly


class ReplicaFailedError(Exception):
    """The replica did not answer, or could not take the request; the message says which.

    `status` is its answer's status, None if there was no answer.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ReplicaLostError(ReplicaFailedError):
    """The replica is known to be lost, though its connection is still open."""


class ReplicaSilentError(Exception):
    """The replica took the request and then exceeded a time limit."""


class AnswerSource(Protocol):
    """The connection on which an answer arrives."""

    def read_on(self) -> None: ...

    def abort(self) -> None: ...


class NoConnectionError(Exception):
    """All connections that this router may have to the replica are in use.

    This is no failure of the replica: it never received the request.
    """


class Answer:
    """A replica's answer. Its owner must `close` it in any case."""

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

    def __init__(self, connection: AnswerSource, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0  # 0 until the head has arrived
        self.raw_headers: Headers = []
        self.first_chunk = b""
        self.complete_on_wire = False
        self.error: Exception | None = None
        self.is_event_stream = False  # uncompressed server-sent events: more can be appended
        self._named: dict[bytes, bytes] = {}  # the first header of each name, set by `open`
        self._connection: AnswerSource | None = connection
        self._loop = loop
        self._unread: list[bytes] = []
        self.unread_bytes = 0
        self._waiter: asyncio.Future[None] | None = None  # of a pending `read`

    def headers(self) -> Headers:
        """The end-to-end headers, without those that the router sets itself."""
        return without(self.raw_headers, NOT_RETURNED, self.header(b"connection"))

    def header(self, name: bytes, missing: bytes = b"") -> bytes:
        """The first header of `name`, which must be lower case."""
        return self._named.get(name, missing)

    def count(self, name: bytes) -> int | None:
        """The number in a header; None if the header is missing or not a number."""
        value = self._named.get(name, b"")
        return int(value) if value.isdigit() and len(value) <= MAX_DIGITS else None

    @property
    def length(self) -> int | None:
        """The body's declared size; None if the replica declares none."""
        value = self._named.get(b"content-length")
        return None if value is None else int(value)  # llhttp ensures that it is a number

    @property
    def complete(self) -> bool:
        """Whether the whole body was read."""
        return self.complete_on_wire and not self._unread

    async def read(self) -> bytes:
        """The next bytes as they arrive, empty at the end.

        Raises the error that ended the body, such as ReplicaFailedError.
        """
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
        """Reads the whole body, or a bit more than `most` bytes of a longer one, and closes.

        Raises ReplicaFailedError.
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
        """Reads the headers and the first bytes of the body, or its end."""
        self.first_chunk = await self.read()
        self._named = named = dict(reversed(self.raw_headers))
        self.is_event_stream = (
            named.get(b"content-type", b"").startswith(b"text/event-stream")
            and named.get(b"content-encoding", b"identity") == b"identity"
        )

    def close(self) -> None:
        """Ends the request; if the answer is incomplete, closes the replica's connection."""
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    # -- the connection's side -----------------------------------------------------------------

    def feed(self, chunk: bytes) -> None:
        self._unread.append(chunk)
        self.unread_bytes += len(chunk)
        self._wake()

    def ended(self, error: Exception | None = None) -> None:
        """The body is complete, or ended with an error; the connection may be reused."""
        self._connection = None
        self.error = error
        self.complete_on_wire = error is None
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():  # else the reader was cancelled
            waiter.set_result(None)
