"""One client request and its answer."""

import asyncio
from typing import Protocol

from pando_router.errors import ApiError, ClientDisconnectedError, unavailable
from pando_router.http.byte_budget import ByteBudget
from pando_router.http.headers import Headers, head, status_line
from pando_router.http.target import split
from pando_router.http.until_gone import UntilGone

LARGE_BODY = 1024 * 1024
"""A larger body takes milliseconds to copy and parse."""

_BODILESS = frozenset((204, 304))


class Channel(Protocol):
    """The connection on which a request arrives and its answer is sent."""

    loop: asyncio.AbstractEventLoop
    until_gone: UntilGone
    gone: bool
    write_paused: bool

    @property
    def failure(self) -> ApiError | None: ...

    @property
    def peer(self) -> tuple[str, int] | None: ...

    def want_body(self, *, say_continue: bool) -> None: ...

    def body_came(self) -> None: ...

    def keeps_alive(self, incoming: "Incoming") -> bool: ...

    def write(self, data: bytes) -> None: ...

    async def writable(self) -> None: ...

    async def left(self) -> None: ...

    def abort(self) -> None: ...


class Incoming:
    """A request whose head has arrived; its body may still be arriving until `body` returns.

    `path` is decoded, `target` is path and query as the client sent them, header names are lower
    case. The answer is either one `send`, or `start`, any number of `write` (wait for `writable`
    when it returns False), and `end`.
    """

    __slots__ = (
        "_body_waiter",
        "_bound",
        "_budget",
        "_chunked",
        "_chunks",
        "_connection",
        "_content_length",
        "_expects_continue",
        "_head",
        "_left",
        "_taken",
        "body_bytes",
        "body_complete",
        "connection_header",
        "content_encoding",
        "ended",
        "headers",
        "http_1_1",
        "keep_alive",
        "method",
        "path",
        "query",
        "started",
        "target",
        "until_gone",
    )

    def __init__(
        self,
        connection: Channel,
        method: str,
        target: bytes,
        headers: Headers,
        *,
        http_1_1: bool,
        keep_alive: bool,
        content_length: int | None,
        connection_header: bytes,
        content_encoding: bytes | None,
        expects_continue: bool,
    ) -> None:
        self.method = method
        self.target, self.path, self.query = split(target)
        self.headers = headers
        self.http_1_1 = http_1_1
        self.keep_alive = keep_alive  # as the client asks for
        self.connection_header = connection_header  # all values joined, empty if there are none
        self.content_encoding = content_encoding
        self._content_length = content_length
        self._expects_continue = expects_continue
        self._connection = connection
        # `with request.until_gone:` raises ClientDisconnectedError when the client disconnects.
        self.until_gone = connection.until_gone
        # The request's body
        self.body_bytes = 0  # received
        self.body_complete = False
        self._chunks: bytes | bytearray = b""
        self._bound: int | None = None  # limit of the body while `body` waits for it
        self._budget: ByteBudget | None = None  # shared by all bodies
        self._taken = 0  # bytes taken from the budget
        self._body_waiter: asyncio.Future[None] | None = None
        # The answer
        self.started = False  # bytes of it were written
        self.ended = False
        self._head: bytes | None = None  # sent with the first bytes of the body
        self._chunked = False
        self._left: int | None = None  # bytes left to send, None if the length is unknown

    # -- the request ---------------------------------------------------------------------------

    async def body(self, max_bytes: int, budget: ByteBudget) -> bytes:
        """The whole body.

        Its bytes are taken from the budget as they arrive, until the request has been served, so
        that a declared length alone keeps no other request out. Large bodies are returned one in
        each turn of the event loop.

        Raises ApiError 413 before reading if the declared length is above `max_bytes`, otherwise as
        soon as more bytes have arrived; 503 likewise if the budget has no room; 408 after the time
        limit; 415 for a compressed body; and ClientDisconnectedError.
        """
        if (self._content_length or self.body_bytes) > max_bytes:
            raise _too_large(max_bytes)
        if self.content_encoding is not None and self.content_encoding.lower() != b"identity":
            raise ApiError(415, "compressed request bodies are not supported")
        self._budget = budget
        to_come = (self._content_length or 0) - self.body_bytes
        if not self._take_what_came() or (to_come > 0 and to_come > budget.room):
            raise _no_room()
        if not self.body_complete:
            await self._rest_of_body(max_bytes)
        if self.body_bytes > LARGE_BODY:
            await budget.turn()
        body, self._chunks = self._chunks, b""
        return bytes(body)

    async def _rest_of_body(self, max_bytes: int) -> None:
        if self._connection.gone:
            raise ClientDisconnectedError
        if self._connection.failure is not None:
            raise self._connection.failure
        self._bound = max_bytes
        self._body_waiter = self._connection.loop.create_future()
        self._connection.want_body(say_continue=self._expects_continue and not self.body_bytes)
        try:
            await self._body_waiter
        finally:
            self._body_waiter = self._bound = None
            self._connection.body_came()

    def _take_what_came(self) -> bool:
        """Takes the received bytes from the budget, if one is set. Returns False if it is full."""
        if self._budget is not None:
            if not self._budget.take(self.body_bytes - self._taken):
                return False
            self._taken = self.body_bytes
        return True

    def served(self) -> None:
        """The request is over; returns its body's bytes to the budget."""
        if self._budget is not None:
            self._budget.give_back(self._taken)
            self._budget = None
            self._taken = 0

    @property
    def body_is_wanted(self) -> bool:
        return self._body_waiter is not None

    def feed(self, chunk: bytes) -> None:
        self.body_bytes += len(chunk)
        if not self._chunks:
            self._chunks = chunk
        else:
            # Not a list, in which one-byte chunks would take 40 times their size.
            if isinstance(self._chunks, bytes):
                self._chunks = bytearray(self._chunks)
            self._chunks += chunk
        if self._bound is not None and self.body_bytes > self._bound:
            self.fail_body(_too_large(self._bound))
        elif self._budget is not None and not self._take_what_came():
            self.fail_body(_no_room())

    def body_ended(self) -> None:
        self.body_complete = True
        if self._body_waiter is not None and not self._body_waiter.done():
            self._body_waiter.set_result(None)

    def fail_body(self, error: Exception) -> None:
        if self._body_waiter is not None and not self._body_waiter.done():
            self._body_waiter.set_exception(error)

    @property
    def gone(self) -> bool:
        """Whether the client has disconnected."""
        return self._connection.gone

    async def left(self) -> None:
        """Returns once the client has disconnected."""
        await self._connection.left()

    @property
    def peer(self) -> tuple[str, int] | None:
        """The client's address and port."""
        return self._connection.peer

    # -- the answer ----------------------------------------------------------------------------

    async def send(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """Sends the whole answer."""
        self.start(status, headers, len(body))
        self.end(body)

    def start(self, status: int, headers: Headers, length: int | None = None) -> None:
        """Sets the answer's head, which is sent with the first bytes of the body or with its end.

        `length` is the body's, None if unknown; `content-length` is not among the headers.
        """
        if self.started:
            raise RuntimeError("the answer has already started")
        framing: Headers = []
        self._chunked = False
        bodiless = status in _BODILESS or self.method == "HEAD"
        if length is not None:
            if status not in _BODILESS:
                framing.append((b"content-length", b"%d" % length))
        elif bodiless:
            pass
        elif self.http_1_1:
            self._chunked = True
            framing.append((b"transfer-encoding", b"chunked"))
        else:
            self.keep_alive = False  # closing the connection marks the end of the body
        self._left = 0 if bodiless else length
        self.keep_alive = self._connection.keeps_alive(self)
        if not self.keep_alive:
            framing.append((b"connection", b"close"))
        elif not self.http_1_1:
            framing.append((b"connection", b"keep-alive"))
        self._head = head(status_line(status), headers + framing if framing else headers)

    def write(self, chunk: bytes) -> bool:
        """Sends bytes of the body. Returns False if the client reads too slowly: wait for
        `writable` before the next ones.

        Raises ClientDisconnectedError after the client has disconnected.
        """
        connection = self._connection
        if connection.gone:
            raise ClientDisconnectedError
        if data := self._framed(chunk):
            self.started = True
            connection.write(data)
        return not connection.write_paused

    async def writable(self) -> None:
        """Returns once the client has read enough. Raises ClientDisconnectedError."""
        await self._connection.writable()

    def end(self, chunk: bytes = b"") -> None:
        """Sends the last bytes of the body.

        If the answer is shorter than its content-length, cuts the connection, so that the client
        cannot mistake a part for the whole.
        """
        data = self._framed(chunk)
        self.ended = True
        if self._left:
            self.abort()
            return
        if self._chunked:
            data += b"0\r\n\r\n"
        self.started = True
        self._connection.write(data)

    def abort(self) -> None:
        """Cuts the connection: the client sees that the answer is not complete."""
        self.ended = True
        self._connection.abort()

    def _framed(self, chunk: bytes) -> bytes:
        """The chunk with its framing, and with the head if that was not sent yet."""
        if self._head is None and not self.started:
            raise RuntimeError("the answer has no head yet")
        if self._left is not None:
            if self._left == 0:  # the status or HEAD allows no body
                chunk = b""
            elif len(chunk) > self._left:
                raise RuntimeError(
                    f"the answer is longer than its content-length by {len(chunk) - self._left}"
                )
            self._left -= len(chunk)
        elif self._chunked and chunk:
            chunk = b"%x\r\n%b\r\n" % (len(chunk), chunk)
        if self._head is not None:
            chunk = self._head + chunk
            self._head = None
        return chunk


def _no_room() -> ApiError:
    return unavailable("this router has no memory left for request bodies", "overloaded")


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(
        413, f"the request body is longer than {max_bytes} bytes", code="request_too_large"
    )
