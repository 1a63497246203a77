"""One client connection: parses requests, serves one at a time, and writes the answers.

Its memory is bounded: the head of one request, MAX_AHEAD_BYTES of pipelined input, one body up to
its reader's limit, and the transport's high-water mark of an answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Protocol, cast

from pando_router.current import Current
from pando_router.errors import ApiError, ClientDisconnectedError, error_answer, unavailable
from pando_router.http.headers import head, status_line
from pando_router.http.incoming import Incoming
from pando_router.http.limits import LINGER_S, MAX_AHEAD_BYTES, ClientLimits
from pando_router.http.request_reader import RequestReader
from pando_router.http.sweeper import NEVER, Sweeper
from pando_router.http.until_gone import UntilGone

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

logger = logging.getLogger("pando.router")


class Phase(Enum):
    """What the connection's deadline waits for."""

    IDLE = auto()  # the next request
    HEAD = auto()  # the rest of a request's head
    SERVING = auto()  # no deadline while an answer is computed
    BODY = auto()  # the body of the request being served
    STALLED = auto()  # the client to read some of its answer
    CLOSING = auto()  # the client to read the last bytes and disconnect


# Plain names, because reading a member from the class costs five times as much.
_IDLE, _HEAD, _SERVING, _BODY, _STALLED, _CLOSING = Phase


class Host(Protocol):
    """The server that owns a client's connection."""

    loop: asyncio.AbstractEventLoop
    sweeper: Sweeper
    limits: Current[ClientLimits]
    draining: bool  # answers then say `connection: close`
    handler: Callable[[Incoming], Awaitable[None]]

    def opened(self, connection: "Connection") -> None: ...

    def closed(self, connection: "Connection") -> None: ...


class Connection(asyncio.Protocol):
    __slots__ = (
        "_ahead_bytes",
        "_current",
        "_discard_input",
        "_left",
        "_phase",
        "_reader",
        "_reading",
        "_server",
        "_sweeper",
        "_transport",
        "_unsent_bytes",
        "_writable",
        "deadline",
        "gone",
        "loop",
        "task",
        "until_gone",
        "write_paused",
    )
    _transport: asyncio.Transport

    def __init__(self, server: Host) -> None:
        self._server = server
        self._sweeper = server.sweeper
        self.loop = server.loop
        self.gone = False
        self.until_gone = UntilGone(self)
        self.deadline = NEVER
        self._phase = _HEAD
        self._reader = RequestReader(self, server.limits)
        self._current: Incoming | None = None  # the request being served
        self.task: asyncio.Task[None] | None = None
        self._ahead_bytes = 0  # received since the last byte of the current request
        self._discard_input = False  # drop all further bytes
        self._reading = True
        self.write_paused = False
        self._writable: asyncio.Future[None] | None = None
        self._unsent_bytes = 0
        self._left: asyncio.Future[None] | None = None

    # -- asyncio.Protocol ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._wait(_HEAD, self._server.limits.now.header_timeout)
        self._server.opened(self)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if self._discard_input or (reader.last_taken and reader.arriving is None):
            return
        reader.feed(data)
        if self._current is None:
            self._serve_next()
        elif reader.arriving is not self._current:
            self._ahead_bytes += len(data)
        self._bound_what_is_ahead()

    def eof_received(self) -> None:
        """A client that closes its side has disconnected and does not get its answer."""
        self._leave()

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()
        self._discard_input = True
        self._server.closed(self)

    def pause_writing(self) -> None:
        self.write_paused = True
        if self._phase is not _CLOSING:
            self._unsent_bytes = self._transport.get_write_buffer_size()
            self._wait(_STALLED, self._server.limits.now.write_timeout)

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._phase is _STALLED:
            self._wait(_SERVING, NEVER)
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        if self._current is None and not self._discard_input:
            self._serve_next()

    # -- reading -------------------------------------------------------------------------------

    def want_body(self, *, say_continue: bool) -> None:
        """Starts reading the body of the request being served."""
        if say_continue:
            self.write(_CONTINUE)
        self._wait(_BODY, self._server.limits.now.body_timeout)
        self._read(True)

    @property
    def failure(self) -> ApiError | None:
        """Why the client's further input cannot be read."""
        return self._reader.failure

    def body_came(self) -> None:
        if self._phase is _BODY:
            self._wait(_SERVING, NEVER)

    def _bound_what_is_ahead(self) -> None:
        body = self._reader.arriving
        if self._ahead_bytes > MAX_AHEAD_BYTES or (
            body is not None and not body.body_is_wanted and body.body_bytes > MAX_AHEAD_BYTES
        ):
            self._read(False)

    def _read(self, wanted: bool) -> None:
        if wanted == self._reading or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # -- serving -------------------------------------------------------------------------------

    def _serve_next(self) -> None:
        """Serves the next request, or waits for one, after the last answer was written."""
        if self.write_paused:
            return  # resume_writing calls this again
        reader = self._reader
        if reader.requests:
            self._current = reader.requests.popleft()
            self._wait(_SERVING, NEVER)
            self.task = self.loop.create_task(self._serve(self._current))
        elif reader.failure is not None:
            self._answer_and_close(reader.failure)
        elif reader.last_taken:
            self._close(linger=False)
        elif reader.head_bytes:
            if self._phase is not _HEAD:
                self._wait(_HEAD, self._server.limits.now.header_timeout)
        else:
            self._wait(_IDLE, self._server.limits.now.idle_timeout)

    async def _serve(self, incoming: Incoming) -> None:
        try:
            await self._server.handler(incoming)
        except ClientDisconnectedError:
            pass
        except ApiError as error:
            await self._fail(incoming, error)
        except Exception:
            logger.exception("a request failed", extra={"path": incoming.path})
            await self._fail(incoming, ApiError(500, "internal error", kind="server_error"))
        finally:
            self._served(incoming)

    async def _fail(self, incoming: Incoming, error: ApiError) -> None:
        if not incoming.started:
            await incoming.send(*error_answer(error))
        elif not incoming.ended:
            incoming.abort()

    def _served(self, incoming: Incoming) -> None:
        incoming.served()
        self._current = self.task = None
        if self._discard_input or self.gone:
            return
        if not incoming.ended:
            self.abort()
        elif not incoming.keep_alive:
            self._close(linger=not incoming.body_complete)
        else:
            self._ahead_bytes = 0
            self._read(True)
            self._serve_next()

    def keeps_alive(self, incoming: Incoming) -> bool:
        """Whether another request may follow this one."""
        return incoming.keep_alive and incoming.body_complete and not self._server.draining

    # -- writing -------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._discard_input:
            self._transport.write(data)

    async def writable(self) -> None:
        """Raises ClientDisconnectedError."""
        self._writable = self.loop.create_future()
        try:
            await self._writable
        finally:
            self._writable = None

    def _answer_and_close(self, error: ApiError) -> None:
        """Answers input that is not a valid request, and closes."""
        status, headers, body = error_answer(error)
        headers += ((b"content-length", b"%d" % len(body)), (b"connection", b"close"))
        self.write(head(status_line(status), headers) + body)
        self._close(linger=True)

    # -- the end -------------------------------------------------------------------------------

    async def left(self) -> None:
        """Returns once the client has disconnected."""
        if not self.gone:
            if self._left is None:
                self._left = self.loop.create_future()
            await asyncio.shield(self._left)

    def abort(self) -> None:
        """Cuts the connection and drops unsent bytes."""
        self._discard_input = True
        self._transport.abort()

    def close_if_idle(self) -> bool:
        """Closes the connection if no byte of a request has arrived. Returns whether it did."""
        is_idle = self._phase is _IDLE or (self._phase is _HEAD and not self._reader.head_bytes)
        if is_idle:
            self._close(linger=False)
        return is_idle

    def turn_away(self) -> None:
        """Refuses the connection because the server is full."""
        error = unavailable("this router is at its limit of client connections", "overloaded")
        self._answer_and_close(error)

    def cancel(self) -> asyncio.Task[None] | None:
        """Cuts the connection and cancels the request being served; returns that one's task."""
        if self.task is not None:
            self.task.cancel()
        self.abort()
        return self.task

    @property
    def peer(self) -> tuple[str, int] | None:
        address = self._transport.get_extra_info("peername")
        # A socket of both families shows an IPv4 address as one of IPv6.
        return (address[0].removeprefix("::ffff:"), address[1]) if address else None

    def _leave(self) -> None:
        if self.gone:
            return
        self.gone = True
        self._reader.stop()
        self.until_gone.left()
        if self._current is not None:
            self._current.fail_body(ClientDisconnectedError())
        if self._writable is not None and not self._writable.done():
            self._writable.set_exception(ClientDisconnectedError())
        if self._left is not None:
            self._left.set_result(None)

    def _close(self, *, linger: bool) -> None:
        self._discard_input = True
        self._unsent_bytes = self._transport.get_write_buffer_size()
        limits = self._server.limits.now
        self._wait(_CLOSING, limits.write_timeout if self._unsent_bytes else LINGER_S)
        if linger:
            self._read(True)
            self._transport.write_eof()
        else:
            self._transport.close()

    def _wait(self, phase: Phase, limit_s: float) -> None:
        self._phase = phase
        self.deadline = self._sweeper.soon + limit_s

    def expire(self) -> None:
        limits = self._server.limits.now
        if self._phase is _HEAD and self._reader.head_bytes:
            seconds = f"{limits.header_timeout:g} s"
            self._reader.refuse(
                ApiError(408, f"the request's headers did not arrive within {seconds}")
            )
            self._serve_next()
        elif self._phase is _BODY and self._current is not None:
            seconds = f"{limits.body_timeout:g} s"
            self._wait(_SERVING, NEVER)
            self._current.fail_body(
                ApiError(408, f"the request body did not arrive within {seconds}")
            )
        elif self._phase in (_STALLED, _CLOSING):
            unsent = self._transport.get_write_buffer_size()
            if unsent < self._unsent_bytes:  # the client is slow, but reads
                self._unsent_bytes = unsent
                self._wait(self._phase, limits.write_timeout if unsent else LINGER_S)
            else:
                self.abort()
        else:
            self._close(linger=False)
