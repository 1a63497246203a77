"""One client connection: parses requests, serves one at a time, and writes the answers.

Its memory is bounded: the head of one request, MAX_AHEAD_BYTES of pipelined input, one body up to
its reader's limit, and the transport's high-water mark of an answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Protocol, cast

from pando_fleet.current import Current
from pando_fleet.http.errors import ApiError, ClientDisconnectedError, error_answer, unavailable
from pando_fleet.http.server.half_closed import INTERIM, can_look, watch_for_reset
from pando_fleet.http.server.headers import head, status_line
from pando_fleet.http.server.incoming import Incoming
from pando_fleet.http.server.limits import LINGER_S, MAX_AHEAD_BYTES, RATE_S, RATES, ClientLimits
from pando_fleet.http.server.request_reader import RequestReader
from pando_fleet.http.server.sweeper import NEVER, Sweeper
from pando_fleet.http.server.until_gone import UntilGone

logger = logging.getLogger("pando.http")


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
    serving: int  # connections that serve a request

    @property
    def crowded(self) -> bool: ...

    handler: Callable[[Incoming], Awaitable[None]]

    def opened(self, connection: "ClientConnection") -> None: ...

    def closed(self, connection: "ClientConnection") -> None: ...

    def stalled(self) -> None: ...


class ClientConnection(asyncio.Protocol):
    __slots__ = (
        "_ahead_bytes",
        "_body_deadline",
        "_current",
        "_discard_input",
        "_input_ended",
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
        "wrote",
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
        self._input_ended = False  # by a client that may still read
        self._body_deadline = NEVER
        self.wrote = False  # since the client ended its input
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
        is_body = reader.arriving is not None and reader.arriving is self._current
        reader.feed(data)
        if self._current is None:
            self._serve_next()
        elif not is_body:  # else at most the end of this piece is ahead
            self._ahead_bytes += len(data)
        self._bound_what_is_ahead()

    def eof_received(self) -> bool:
        """A client that closes its side gets the answers to its complete requests, if any."""
        reader, current = self._reader, self._current
        if (
            current is None
            or self._discard_input
            or reader.arriving is not None
            or not current.http_1_1
            or not can_look
        ):
            self._leave()
            return False  # closes the connection
        self._input_ended = reader.last_taken = True
        self.wrote = False
        watch_for_reset(self, self._transport)
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()
        self._discard_input = True
        self._reader.close()
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
            self.write(INTERIM)
        limits = self._server.limits.now
        self._body_deadline = self.loop.time() + limits.body_timeout
        self._wait(_BODY, min(limits.body_timeout / RATES, RATE_S))
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
        if wanted == self._reading or self._input_ended or self._transport.is_closing():
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
            self._server.serving += 1
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
        self._server.serving -= 1
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

    @property
    def draining(self) -> bool:
        return self._server.draining

    @property
    def crowded(self) -> bool:
        return self._server.crowded

    # -- writing -------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._discard_input:
            self.wrote = True
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

    @property
    def answer_has_begun(self) -> bool:
        return self._current is not None and self._current.started

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

    @property
    def receives(self) -> bool:
        """Whether a part of a request has arrived, and more is to come."""
        return self._phase in (_HEAD, _BODY)

    def close_if_idle(self) -> bool:
        """Closes the connection if no byte of a request has arrived. Returns whether it did."""
        is_idle = self._phase is _IDLE or (self._phase is _HEAD and not self._reader.head_bytes)
        if is_idle:
            self._close(linger=False)
        return is_idle

    def turn_away(self) -> None:
        """Refuses the connection because the server is full."""
        error = unavailable("this server is at its limit of client connections", "overloaded")
        self._answer_and_close(error)

    def cancel(self) -> asyncio.Task[None] | None:
        """Cuts the connection and cancels the request being served; returns that one's task."""
        if self.task is not None:
            self.task.cancel()
        self.abort()
        return self.task

    @property
    def address(self) -> str:
        return peer[0] if (peer := self.peer) else ""

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

    def _expire_body(self, incoming: Incoming, limits: ClientLimits) -> None:
        """The body's time is over, or the time after which its rate is looked at."""
        left_s = self._body_deadline - self.loop.time()
        if left_s <= 0:
            problem = f"did not arrive within {limits.body_timeout:g} s"
        elif incoming.new_rate() < limits.min_body_rate:
            problem = f"arrives at less than {limits.min_body_rate} bytes per second"
        else:
            self._wait(_BODY, min(left_s, limits.body_timeout / RATES, RATE_S))
            return
        self._wait(_SERVING, NEVER)
        incoming.fail_body(ApiError(408, f"the request body {problem}"))

    def expire(self) -> None:
        limits = self._server.limits.now
        if self._phase is _HEAD and self._reader.head_bytes:
            seconds = f"{limits.header_timeout:g} s"
            self._reader.refuse(
                ApiError(408, f"the request's headers did not arrive within {seconds}")
            )
            self._serve_next()
        elif self._phase is _BODY and self._current is not None:
            self._expire_body(self._current, limits)
        elif self._phase in (_STALLED, _CLOSING):
            unsent = self._transport.get_write_buffer_size()
            if unsent < self._unsent_bytes:  # the client is slow, but reads
                self._unsent_bytes = unsent
                self._wait(self._phase, limits.write_timeout if unsent else LINGER_S)
            else:
                if self._phase is _STALLED:
                    self._server.stalled()
                self.abort()
        else:
            self._close(linger=False)
