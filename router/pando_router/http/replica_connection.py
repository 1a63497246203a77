"""One connection to a replica: sends a request and reads its answer, one at a time."""

import asyncio
from enum import Enum, auto
from typing import Protocol, cast

import httptools

from pando_fleet.current import Current
from pando_fleet.http.server.headers import Headers
from pando_fleet.http.server.sweeper import NEVER, Sweeper
from pando_router.http.answer import (
    MAX_UNREAD_BYTES,
    Answer,
    ReplicaFailedError,
    ReplicaLostError,
    ReplicaSilentError,
)
from pando_router.http.limits import ReplicaLimits

MAX_HEAD_BYTES = 256 * 1024
MAX_HEADERS = 1024
# From this size on, head and body are written separately instead of being copied into one.
_JOIN_BELOW = 64 * 1024


class Progress(Enum):
    """How much of the answer has arrived."""

    NOTHING = auto()  # no byte
    HEAD = auto()
    OPEN = auto()  # the head, but nothing of the body
    BODY = auto()
    DONE = auto()


# Plain names, because reading a member from the class costs five times as much.
_NOTHING, _HEAD, _OPEN, _BODY, _DONE = Progress


class Keeper(Protocol):
    """The pool that owns a replica's connections and reuses them."""

    loop: asyncio.AbstractEventLoop
    sweeper: Sweeper
    limits: Current[ReplicaLimits]

    def opened(self, connection: "ReplicaConnection") -> None: ...

    def put(self, connection: "ReplicaConnection") -> None:
        """Takes back a connection whose answer is done."""

    def closed(self, connection: "ReplicaConnection") -> None: ...


class ReplicaConnection(asyncio.Protocol):
    """Owned by a request from `send` until its answer is done; otherwise idle in the pool."""

    __slots__ = (
        "_answer",
        "_cut_at",
        "_head_bytes",
        "_keeps_alive",
        "_last_read",
        "_limits",
        "_loop",
        "_parser",
        "_pool",
        "_raw_headers",
        "_reading",
        "_transport",
        "_until_close",
        "idle_until",
        "is_check",
        "progress",
    )
    _transport: asyncio.Transport

    def __init__(self, pool: Keeper) -> None:
        self._pool = pool
        self._loop = pool.loop
        self._parser = httptools.HttpResponseParser(self)
        self._answer: Answer | None = None
        self._raw_headers: Headers = []  # the answer's
        self.progress = _NOTHING
        self.is_check = False  # the current request is a health check
        self._head_bytes = 0
        self._keeps_alive = False
        self._until_close = False  # the body ends with the connection
        self._reading = True
        self.idle_until = NEVER
        self._cut_at = NEVER
        self._last_read = NEVER  # when bytes of the current answer arrived, by `Sweeper.soon`
        self._limits = pool.limits.now  # of the current request

    @property
    def usable(self) -> bool:
        return not self._transport.is_closing()

    def send(self, request_head: bytes, body: bytes) -> Answer:
        self._answer = answer = Answer(self, self._loop)
        self._raw_headers = answer.raw_headers
        self.progress = _NOTHING
        self._head_bytes = 0
        self._until_close = False
        self._limits = limits = self._pool.limits.now
        self._last_read = soon = self._pool.sweeper.soon
        self._cut_at = soon + limits.request
        if len(body) < _JOIN_BELOW:
            self._transport.write(request_head + body)
        else:
            self._transport.writelines((request_head, body))
        return answer

    def read_on(self) -> None:
        """Resumes reading after the answer's unread bytes were taken."""
        if not self._reading and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()
            self._last_read = self._pool.sweeper.soon

    def abort(self) -> None:
        """Closes at once; the replica sees the current request as cancelled."""
        self._answer = None
        self._transport.abort()

    def abandon(self, why: str, silent_s: float) -> bool:
        """Fails the current request if nothing of its answer arrived for `silent_s` seconds.

        Spares an answer whose reading is paused, because its client is slow. Returns whether it
        failed one.
        """
        if self._answer is None or self.is_check or not self._reading:
            return False
        if self._pool.sweeper.soon - self._last_read < silent_s:
            return False
        self._fail(ReplicaLostError(why))
        return True

    # -- asyncio.Protocol ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._pool.opened(self)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:  # bytes without a request
            self._transport.abort()
            return
        self._last_read = self._pool.sweeper.soon
        if self.progress is _NOTHING:
            self.progress = _HEAD
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(ReplicaFailedError("switched to another protocol"))
        except httptools.HttpParserError as error:
            self._fail(ReplicaFailedError(f"did not answer with valid HTTP/1.1: {error}"))
        if self._answer is not answer:
            return  # it has failed
        if self.progress is _DONE:
            self._done(answer)
        elif self.progress is _HEAD:
            self._bound_head(answer, len(data))
        elif answer.unread_bytes > MAX_UNREAD_BYTES:
            self._stop_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._pool.closed(self)
        answer = self._answer
        if answer is None:
            return
        self._answer = None
        if self._until_close and error is None:
            answer.ended()
        else:
            within = "" if self.progress is _NOTHING else " within its answer"
            answer.ended(ReplicaFailedError(f"closed the connection{within}{_because(error)}"))

    # -- httptools' callbacks ------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.progress is _DONE:
            self._keeps_alive = False  # a second answer to one request: do not reuse

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.progress is _HEAD:  # not a trailer
            self._raw_headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        answer = self._answer
        if answer is None or self.progress is not _HEAD:
            return
        status = self._parser.get_status_code()
        if status < 200:
            return
        answer.status = status
        self.progress = _OPEN
        self._keeps_alive = self._parser.should_keep_alive()
        self._until_close = not self._keeps_alive and not any(
            name in _FRAMING for name, _ in answer.raw_headers
        )

    def on_body(self, chunk: bytes) -> None:
        if self._answer is not None and self.progress is not _DONE:
            self.progress = _BODY
            self._answer.feed(chunk)

    def on_message_complete(self) -> None:
        if self.progress is not _HEAD:
            self.progress = _DONE
        elif self._answer is not None:  # an interim answer such as "100 Continue"
            self._answer.raw_headers.clear()

    # ------------------------------------------------------------------------------------------

    def _bound_head(self, answer: Answer, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > MAX_HEAD_BYTES or len(answer.raw_headers) > MAX_HEADERS:
            self._fail(ReplicaFailedError("answered with a head that is too long"))

    def _stop_reading(self) -> None:
        if self._reading and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def _done(self, answer: Answer) -> None:
        """The whole answer has arrived; returns the connection to the pool."""
        answer.ended()
        self._answer = None
        # If the answer arrived before its request was fully sent, the rest would block the next.
        if self._keeps_alive and not self._transport.get_write_buffer_size():
            self._pool.put(self)
        else:
            self._transport.abort()

    def _fail(self, error: Exception) -> None:
        answer, self._answer = self._answer, None
        self.progress = _DONE
        self._transport.abort()
        if answer is not None:
            answer.ended(error)

    @property
    def deadline(self) -> float:
        """See `Limited`. Computed at each sweep, cheaper than at each event of a stream."""
        if self._answer is None:
            return self.idle_until
        if not self._reading:
            return self._cut_at  # a replica is not silent while reading is paused
        limits = self._limits
        within = limits.idle if self.progress is _BODY else limits.first_byte
        return min(self._cut_at, self._last_read + within)

    def expire(self) -> None:
        limits = self._limits
        if self._answer is None:
            self._transport.abort()
        elif self._cut_at <= self.deadline:
            self._fail(ReplicaSilentError(f"did not finish within {limits.request:g} s"))
        elif self.progress is _BODY:
            self._fail(ReplicaFailedError(f"sent nothing for {limits.idle:g} s"))
        else:
            self._fail(ReplicaSilentError(f"sent nothing for {limits.first_byte:g} s"))


_FRAMING = frozenset((b"content-length", b"transfer-encoding"))


def _because(error: Exception | None) -> str:
    return f": {error}" if error is not None and str(error) else ""
