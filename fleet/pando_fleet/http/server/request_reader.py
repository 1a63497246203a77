"""Parses one connection's bytes into requests, in order.

llhttp checks the framing in its strict mode. What it accepts but two servers could read differently
is refused here, because all servers must agree on where a request ends (request smuggling).
"""

from collections import deque

import httptools

from pando_fleet.current import Current
from pando_fleet.http.errors import ApiError, bad_request
from pando_fleet.http.server.headers import Headers, head
from pando_fleet.http.server.incoming import Incoming
from pando_fleet.http.server.incoming_body import Channel
from pando_fleet.http.server.limits import MAX_AHEAD_REQUESTS, MAX_HEADERS, ClientLimits

_FRAMING = frozenset((b"content-length", b"transfer-encoding"))
_SPECIAL = _FRAMING | {b"host", b"connection", b"expect", b"content-encoding"}
# How many bytes a chunked body may take on the wire per byte of content; more is an attack.
_MAX_CHUNK_OVERHEAD = 16


class RequestReader:
    """`feed` adds each request to `requests` when its head is complete, then fills its body."""

    __slots__ = (
        "_body_wire_bytes",
        "_connection",
        "_headers",
        "_limits",
        "_parser",
        "_url",
        "arriving",
        "failure",
        "head_bytes",
        "last_taken",
        "requests",
    )

    def __init__(self, connection: Channel, limits: Current[ClientLimits]) -> None:
        self._connection = connection
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self.requests: deque[Incoming] = deque()  # not yet served
        self.arriving: Incoming | None = None  # the request whose body is incomplete
        self.last_taken = False  # no further request will be read
        self.failure: ApiError | None = None  # why, to be answered after the pending requests
        self.head_bytes = 0  # received of the next request
        self._url = b""
        self._headers: Headers = []
        self._body_wire_bytes = 0

    def feed(self, data: bytes) -> None:
        if self.arriving is None:
            self.head_bytes += len(data)
        else:
            self._body_wire_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._continue_without_upgrade(data, upgrade)
        except httptools.HttpParserError as error:
            self._refuse_bytes(error)
        max_header_bytes = self._limits.now.max_header_bytes
        if self.head_bytes > max_header_bytes:
            self.refuse(_head_too_long(max_header_bytes))
        elif self.arriving is not None:
            most = max_header_bytes + _MAX_CHUNK_OVERHEAD * self.arriving.body_bytes
            if self._body_wire_bytes > most:
                self.refuse(bad_request("the body's chunks are too small"))

    def refuse(self, error: ApiError) -> None:
        """Stops reading requests; `error` answers the one that is arriving."""
        if self.arriving is not None:
            self.arriving.fail_body(error)
            self.arriving = None
        elif self.last_taken:
            return
        self.last_taken = True
        self.failure = error

    def stop(self) -> None:
        """Drops the requests not yet served."""
        self.last_taken = True
        self.requests.clear()

    def close(self) -> None:
        """Call it last. Parser and reader refer to each other, and the connection to its reader:
        without this all three would wait for a full garbage collection."""
        self.arriving = None
        del self._parser, self._connection

    # -- httptools' callbacks ------------------------------------------------------------------
    # They must not raise, or the parser could not continue.

    def on_url(self, url: bytes) -> None:
        if self.arriving is None:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers are ignored: nothing in them matters after the body.
        if self.arriving is None and len(self._headers) <= MAX_HEADERS:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self.last_taken or self.arriving is not None:
            return
        try:
            incoming = self._incoming()
        except ApiError as error:
            self.refuse(error)
            return
        self._url, self._headers = b"", []
        self.head_bytes = self._body_wire_bytes = 0
        self.arriving = incoming
        self.requests.append(incoming)
        if len(self.requests) == MAX_AHEAD_REQUESTS:
            incoming.keep_alive = False
        self.last_taken = not incoming.keep_alive

    def on_body(self, chunk: bytes) -> None:
        if self.arriving is not None:
            self.arriving.feed(chunk)

    def on_message_complete(self) -> None:
        if self.arriving is not None:
            self.arriving.body_ended()
            self.arriving = None

    # ------------------------------------------------------------------------------------------

    def _incoming(self) -> Incoming:
        """Makes a request from the head just read. Raises ApiError."""
        headers = self._headers
        max_header_bytes = self._limits.now.max_header_bytes
        if len(headers) > MAX_HEADERS:
            raise ApiError(431, f"the request has more than {MAX_HEADERS} headers")
        if self.head_bytes > max_header_bytes:  # may include body bytes of the same read
            size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in headers)
            if size > max_header_bytes:
                raise _head_too_long(max_header_bytes)
        length: int | None = None
        content_encoding: bytes | None = None
        connection = b""
        codings = hosts = 0
        expects_continue = False
        for name, value in headers:
            if name in _SPECIAL:
                if name == b"host":
                    hosts += 1
                elif name == b"content-length":
                    length = int(value)  # llhttp ensures that there is at most one, of digits
                elif name == b"transfer-encoding":
                    codings += 1
                    if value.lower() != b"chunked":
                        raise ApiError(501, "the only supported transfer coding is 'chunked'")
                elif name == b"content-encoding":
                    content_encoding = value
                elif name == b"connection":
                    connection += b"," + value if connection else value
                else:
                    expects_continue = value.lower() == b"100-continue"
        parser = self._parser
        version = parser.get_http_version()
        http_1_1 = version == "1.1"
        if not http_1_1 and version != "1.0":
            raise ApiError(505, f"HTTP/{version} is not supported, use HTTP/1.1 or HTTP/1.0")
        if codings and (length is not None or codings > 1 or not http_1_1):
            raise bad_request("the headers do not define the length of the request's body")
        if hosts != 1 and (http_1_1 or hosts):
            raise bad_request("give exactly one host header")
        method = parser.get_method().decode()
        if method == "CONNECT":
            raise ApiError(501, "CONNECT is not supported")
        return Incoming(
            self._connection,
            method,
            self._url,
            headers,
            http_1_1=http_1_1,
            keep_alive=parser.should_keep_alive(),
            content_length=length,
            connection_header=connection,
            content_encoding=content_encoding,
            expects_continue=expects_continue and http_1_1,
        )

    def _continue_without_upgrade(self, data: bytes, upgrade: httptools.HttpParserUpgrade) -> None:
        """Ignores the offer of another protocol, as a server may (RFC 9110, 7.8).

        llhttp assumes that such a request has no body, but Java's HTTP client offers h2c with each
        POST. So a new parser reads the same framing without the offer, and then the body.
        """
        while self.requests and not self.last_taken:
            self.arriving = incoming = self.requests[-1]
            incoming.body_complete = False
            framing = [header for header in incoming.headers if header[0] in _FRAMING]
            data = head(b"POST / HTTP/1.1", framing) + data[upgrade.args[0] :]
            self._parser = httptools.HttpRequestParser(self)
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as another:
                upgrade = another
            except httptools.HttpParserError as error:
                self._refuse_bytes(error)
            else:
                return

    def _refuse_bytes(self, error: httptools.HttpParserError) -> None:
        self.refuse(bad_request(f"the request is not HTTP/1.1: {error}"))


def _head_too_long(most: int) -> ApiError:
    return ApiError(431, f"request line and headers are longer than {most} bytes")
