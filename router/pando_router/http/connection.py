"""One connection of a client: bytes to requests, one served at a time, answers to bytes.

What a connection holds is bounded: the head of one request, MAX_AHEAD_BYTES of what came too early,
one body up to the bound that its reader gave, and the transport's high-water mark of an answer.
Framing is llhttp's to judge, in its strict mode, and what it lets pass but two servers could read
differently is refused here: what this end takes for the end of a request must be every other's.
"""

import asyncio
import logging
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, cast

import httptools

from pando_router.errors import ApiError, ClientDisconnectedError, bad_request, error_answer
from pando_router.http.headers import Headers, head, status_line
from pando_router.http.incoming import Incoming
from pando_router.http.limits import LINGER_S, MAX_AHEAD_BYTES, MAX_AHEAD_REQUESTS, MAX_HEADERS
from pando_router.http.sweeper import NEVER
from pando_router.http.until_gone import UntilGone

if TYPE_CHECKING:
    from pando_router.http.server import Server

_FRAMING = frozenset((b"content-length", b"transfer-encoding"))
_SPECIAL = _FRAMING | {b"host", b"expect", b"content-encoding"}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# Bytes of a chunked body on the wire for each byte in it, beyond which it is no honest body.
_MAX_CHUNK_OVERHEAD = 16

logger = logging.getLogger("pando.router")


class Phase(Enum):
    """What the connection's deadline is for."""

    IDLE = auto()  # the next request
    HEAD = auto()  # the rest of a request's head
    SERVING = auto()  # nothing: the answer may take its time
    BODY = auto()  # the body of the request being served
    STALLED = auto()  # the client reading some of its answer
    CLOSING = auto()  # the client taking the last bytes and going


class Connection(asyncio.Protocol):
    __slots__ = (
        "_ahead_bytes",
        "_arriving",
        "_body_wire_bytes",
        "_current",
        "_deaf",
        "_failure",
        "_head_bytes",
        "_headers",
        "_last_taken",
        "_left",
        "_parser",
        "_phase",
        "_queue",
        "_reading",
        "_server",
        "_task",
        "_transport",
        "_unsent_bytes",
        "_url",
        "_writable",
        "deadline",
        "gone",
        "loop",
        "watcher",
        "write_paused",
    )
    _transport: asyncio.Transport

    def __init__(self, server: "Server") -> None:
        self._server = server
        self.loop = server.loop
        self.gone = False
        self.watcher: UntilGone | None = None
        self.deadline = NEVER
        self._phase = Phase.HEAD
        self._parser = httptools.HttpRequestParser(self)
        # The request whose head is being read.
        self._url = b""
        self._headers: Headers = []
        self._head_bytes = 0
        # The request whose body is being read, the one being served (mostly the same), the others.
        self._arriving: Incoming | None = None
        self._body_wire_bytes = 0
        self._current: Incoming | None = None
        self._task: asyncio.Task[None] | None = None
        self._queue: deque[Incoming] = deque()
        self._ahead_bytes = 0
        self._last_taken = False  # no request is read after those in the queue
        self._failure: ApiError | None = None  # to be said after the answers that are due
        self._deaf = False  # what comes is thrown away
        self._reading = True
        self.write_paused = False
        self._writable: asyncio.Future[None] | None = None
        self._unsent_bytes = 0
        self._left: asyncio.Future[None] | None = None

    # -- asyncio.Protocol ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._server.opened(self)
        self._wait(Phase.HEAD, self._server.limits.header_timeout)

    def data_received(self, data: bytes) -> None:
        if self._deaf or (self._last_taken and self._arriving is None):
            return
        self._count(len(data))
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_without_upgrade(data, upgrade)
        except httptools.HttpParserError as error:
            self._refuse(bad_request(f"the request is not HTTP/1.1: {error}"))
        self._bound_overhead()
        if self._current is None:
            self._serve_next()
        self._bound_what_is_ahead()

    def eof_received(self) -> None:
        """A client that closes its side has left: who wants the answer keeps it open."""
        self._leave()

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()
        self._deaf = True
        self._server.closed(self)

    def pause_writing(self) -> None:
        self.write_paused = True
        if self._phase is not Phase.CLOSING:
            self._unsent_bytes = self._transport.get_write_buffer_size()
            self._wait(Phase.STALLED, self._server.limits.write_timeout)

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._phase is Phase.STALLED:
            self._wait(Phase.SERVING, NEVER)
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        if self._current is None and not self._deaf:
            self._serve_next()

    # -- httptools' callbacks ------------------------------------------------------------------
    # They raise nothing: the parser could not go on after that.

    def on_url(self, url: bytes) -> None:
        if self._arriving is None:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are left out: nothing in them matters once the body was read.
        if self._arriving is None and len(self._headers) <= MAX_HEADERS:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._last_taken or self._arriving is not None:
            return
        try:
            incoming = self._incoming()
        except ApiError as error:
            self._refuse(error)
            return
        self._url, self._headers = b"", []
        self._head_bytes = self._body_wire_bytes = 0
        self._arriving = incoming
        self._queue.append(incoming)
        if len(self._queue) == MAX_AHEAD_REQUESTS:
            incoming.keep_alive = False
        self._last_taken = not incoming.keep_alive

    def on_body(self, chunk: bytes) -> None:
        if self._arriving is not None:
            self._arriving.feed(chunk)

    def on_message_complete(self) -> None:
        if self._arriving is not None:
            self._arriving.body_ended()
            self._arriving = None

    # -- reading -------------------------------------------------------------------------------

    def _incoming(self) -> Incoming:
        """The request whose head has just been read. Raises ApiError."""
        headers = self._headers
        self._bound_head(headers)
        length: int | None = None
        content_encoding: bytes | None = None
        codings = hosts = 0
        expects_continue = False
        for name, value in headers:
            if name in _SPECIAL:
                if name == b"host":
                    hosts += 1
                elif name == b"content-length":
                    length = int(value)  # one at most, and of digits: llhttp sees to that
                elif name == b"transfer-encoding":
                    codings += 1
                    if value.lower() != b"chunked":
                        raise ApiError(501, "the only transfer coding understood is 'chunked'")
                elif name == b"content-encoding":
                    content_encoding = value
                else:
                    expects_continue = value.lower() == b"100-continue"
        parser = self._parser
        version = parser.get_http_version()
        http_1_1 = version == "1.1"
        if not http_1_1 and version != "1.0":
            raise ApiError(505, "HTTP/1.1 and HTTP/1.0 are spoken here")
        if codings and (length is not None or codings > 1 or not http_1_1):
            raise bad_request("the headers leave open how long the request is")
        if hosts != 1 and (http_1_1 or hosts):
            raise bad_request("give exactly one host header")
        method = parser.get_method().decode()
        if method == "CONNECT":
            raise ApiError(501, "CONNECT is not supported")
        return Incoming(
            self,
            method,
            self._url,
            headers,
            http_1_1=http_1_1,
            keep_alive=parser.should_keep_alive(),
            content_length=length,
            content_encoding=content_encoding,
            expects_continue=expects_continue and http_1_1,
        )

    def _go_on_without_upgrade(self, data: bytes, upgrade: httptools.HttpParserUpgrade) -> None:
        """Ignores the offer of another protocol, as a server may (RFC 9110, 7.8).

        llhttp takes such a request to have no body, but Java's HTTP client offers h2c with every
        POST. So another parser reads the same framing without the offer, and then the body.
        """
        while self._queue and not self._last_taken:
            self._arriving = incoming = self._queue[-1]
            incoming.body_complete = False
            framing = [header for header in incoming.headers if header[0] in _FRAMING]
            data = head(b"POST / HTTP/1.1\r\n", framing) + data[upgrade.args[0] :]
            self._parser = httptools.HttpRequestParser(self)
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as another:
                upgrade = another
            except httptools.HttpParserError as error:
                self._refuse(bad_request(f"the request is not HTTP/1.1: {error}"))
            else:
                return

    def _refuse(self, error: ApiError) -> None:
        """No further request is read; `error` is the answer to the one that came last."""
        if self._arriving is not None:
            self._arriving.fail_body(error)
            self._arriving = None
        elif self._last_taken:
            return
        self._last_taken = True
        self._failure = error

    @property
    def failure(self) -> ApiError | None:
        """Why the rest of what the client sends cannot be read."""
        return self._failure

    def want_body(self, *, say_continue: bool) -> None:
        """The request being served waits for its body."""
        if say_continue:
            self.write(_CONTINUE)
        self._wait(Phase.BODY, self._server.limits.body_timeout)
        self._read(True)

    def body_came(self) -> None:
        if self._phase is Phase.BODY:
            self._wait(Phase.SERVING, NEVER)

    # -- bounds --------------------------------------------------------------------------------

    def _count(self, size: int) -> None:
        if self._arriving is None:
            self._head_bytes += size
        else:
            self._body_wire_bytes += size
        if self._current is not None and self._arriving is not self._current:
            self._ahead_bytes += size

    def _bound_head(self, headers: Headers) -> None:
        max_bytes = self._server.limits.max_header_bytes
        if len(headers) > MAX_HEADERS:
            raise ApiError(431, f"the request has more than {MAX_HEADERS} headers")
        if self._head_bytes > max_bytes:  # with what came of the body in the same read
            size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in headers)
            if size > max_bytes:
                raise self._head_too_long()

    def _bound_overhead(self) -> None:
        """Of what a request may have besides its body and is not kept."""
        max_bytes = self._server.limits.max_header_bytes
        if self._head_bytes > max_bytes:
            self._refuse(self._head_too_long())
        elif self._arriving is not None:
            max_bytes += _MAX_CHUNK_OVERHEAD * self._arriving.body_bytes
            if self._body_wire_bytes > max_bytes:
                self._refuse(bad_request("the chunks of the body have too much around them"))

    def _bound_what_is_ahead(self) -> None:
        body = self._arriving
        if self._ahead_bytes > MAX_AHEAD_BYTES or (
            body is not None and not body.body_is_wanted and body.body_bytes > MAX_AHEAD_BYTES
        ):
            self._read(False)

    def _head_too_long(self) -> ApiError:
        max_bytes = self._server.limits.max_header_bytes
        return ApiError(431, f"request line and headers are longer than {max_bytes} bytes")

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
        """Once the last request is served, and its answer taken: what is to be done then."""
        if self.write_paused:
            return  # resume_writing comes back here
        if self._queue:
            self._current = self._queue.popleft()
            self._wait(Phase.SERVING, NEVER)
            self._task = self.loop.create_task(self._serve(self._current))
        elif self._failure is not None:
            self._say(self._failure)
        elif self._last_taken:
            self._close(linger=False)
        elif self._head_bytes:
            if self._phase is not Phase.HEAD:
                self._wait(Phase.HEAD, self._server.limits.header_timeout)
        else:
            self._wait(Phase.IDLE, self._server.limits.idle_timeout)

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
        if incoming.started:
            incoming.abort()
        else:
            await incoming.send(*error_answer(error))

    def _served(self, incoming: Incoming) -> None:
        self._current = self._task = None
        if self._deaf or self.gone:
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
        return (
            incoming.keep_alive
            and incoming.body_complete
            and self._failure is None
            and not self._server.draining
        )

    # -- writing -------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if not self._deaf:
            self._transport.write(data)

    async def writable(self) -> None:
        """Raises ClientDisconnectedError."""
        self._writable = self.loop.create_future()
        try:
            await self._writable
        finally:
            self._writable = None

    def _say(self, error: ApiError) -> None:
        """Answers what never became a request, and ends."""
        status, headers, body = error_answer(error)
        headers += ((b"content-length", b"%d" % len(body)), (b"connection", b"close"))
        self.write(head(status_line(status), headers) + body)
        self._close(linger=True)

    # -- the end -------------------------------------------------------------------------------

    async def left(self) -> None:
        """Returns once the client has left."""
        if not self.gone:
            if self._left is None:
                self._left = self.loop.create_future()
            await asyncio.shield(self._left)

    def abort(self) -> None:
        """Cuts the connection; nothing that is still unsent goes out."""
        self._deaf = True
        self._transport.abort()

    def close_where_idle(self) -> None:
        if self._phase is Phase.IDLE or (self._phase is Phase.HEAD and not self._head_bytes):
            self._close(linger=False)

    def cancel(self) -> asyncio.Task[None] | None:
        """Ends the connection, and what is being served: its task, if any, is about to end."""
        if self._task is not None:
            self._task.cancel()
        self.abort()
        return self._task

    @property
    def peer(self) -> tuple[str, int] | None:
        address = self._transport.get_extra_info("peername")
        return (address[0], address[1]) if address else None

    def _leave(self) -> None:
        if self.gone:
            return
        self.gone = self._last_taken = True
        self._queue.clear()
        if self.watcher is not None:
            self.watcher.interrupt()
        if self._current is not None:
            self._current.fail_body(ClientDisconnectedError())
        if self._writable is not None and not self._writable.done():
            self._writable.set_exception(ClientDisconnectedError())
        if self._left is not None:
            self._left.set_result(None)

    def _close(self, *, linger: bool) -> None:
        self._deaf = True
        self._unsent_bytes = self._transport.get_write_buffer_size()
        limits = self._server.limits
        self._wait(Phase.CLOSING, limits.write_timeout if self._unsent_bytes else LINGER_S)
        if linger:
            self._read(True)
            self._transport.write_eof()
        else:
            self._transport.close()

    def _wait(self, phase: Phase, limit_s: float) -> None:
        self._phase = phase
        self.deadline = self._server.sweeper.deadline(limit_s)

    def expire(self) -> None:
        limits = self._server.limits
        if self._phase is Phase.HEAD and self._head_bytes:
            seconds = f"{limits.header_timeout:g} s"
            self._refuse(ApiError(408, f"the request's headers did not arrive within {seconds}"))
            self._serve_next()
        elif self._phase is Phase.BODY and self._current is not None:
            seconds = f"{limits.body_timeout:g} s"
            self._wait(Phase.SERVING, NEVER)
            self._current.fail_body(
                ApiError(408, f"the request body did not arrive within {seconds}")
            )
        elif self._phase in (Phase.STALLED, Phase.CLOSING):
            unsent = self._transport.get_write_buffer_size()
            if unsent < self._unsent_bytes:  # slow, but not dead
                self._unsent_bytes = unsent
                self._wait(self._phase, limits.write_timeout if unsent else LINGER_S)
            else:
                self.abort()
        else:
            self._close(linger=False)
