"""One client request and its answer."""

from pando_fleet.http.errors import ClientDisconnectedError
from pando_fleet.http.server.headers import Headers, head, status_line
from pando_fleet.http.server.incoming_body import Channel, IncomingBody
from pando_fleet.http.server.target import split

_BODILESS = frozenset((204, 304))


class Incoming(IncomingBody):
    """A request whose head has arrived; its body may still be arriving until `body` returns.

    `path` is decoded, `target` is path and query as the client sent them, header names are lower
    case. The answer is either one `send`, or `start`, any number of `write` (wait for `writable`
    when it returns False), and `end`.
    """

    __slots__ = (
        "_chunked",
        "_head",
        "_left",
        "connection_header",
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
        super().__init__(
            connection,
            content_length=content_length,
            content_encoding=content_encoding,
            expects_continue=expects_continue,
        )
        self.method = method
        self.target, self.path, self.query = split(target)
        self.headers = headers
        self.http_1_1 = http_1_1
        self.keep_alive = keep_alive  # as the client asks for
        self.connection_header = connection_header  # all values joined, empty if there are none
        # `with request.until_gone:` raises ClientDisconnectedError when the client disconnects.
        self.until_gone = connection.until_gone
        # The answer
        self.started = False  # bytes of it were written
        self.ended = False
        self._head: bytes | None = None  # sent with the first bytes of the body
        self._chunked = False
        self._left: int | None = None  # bytes left to send, None if the length is unknown

    @property
    def crowded(self) -> bool:
        """Whether only connections that are kept free for probes are left."""
        return self._connection.crowded

    @property
    def gone(self) -> bool:
        """Whether the client has disconnected."""
        return self._connection.gone

    async def left(self) -> None:
        """Returns once the client has disconnected."""
        await self._connection.left()

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
        self.keep_alive &= self.body_complete and not self._connection.draining
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
