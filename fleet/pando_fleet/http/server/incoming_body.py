"""The body of a client's request while it arrives: its bounds, its rate, its place among all."""

import asyncio
from io import BytesIO
from math import inf
from typing import Protocol

from pando_fleet.http.errors import ApiError, ClientDisconnectedError, unavailable
from pando_fleet.http.json_values import CONTAINER, JsonValues
from pando_fleet.http.server.bodies import Bodies
from pando_fleet.http.server.until_gone import UntilGone

LARGE_BODY = 1024 * 1024
"""A larger body takes milliseconds to copy and parse."""

UNCOUNTED_BYTES = 64 * 1024
"""A shorter body is parsed in milliseconds and leaves little memory behind, whatever its values."""

_SOON_S = 1.0  # before it, a body's rate says nothing


class Channel(Protocol):
    """The connection on which a request arrives and its answer is sent."""

    loop: asyncio.AbstractEventLoop
    until_gone: UntilGone
    gone: bool
    write_paused: bool

    @property
    def draining(self) -> bool: ...

    @property
    def crowded(self) -> bool: ...

    @property
    def failure(self) -> ApiError | None: ...

    @property
    def peer(self) -> tuple[str, int] | None: ...

    def want_body(self, *, say_continue: bool) -> None: ...

    def body_came(self) -> None: ...

    def write(self, data: bytes) -> None: ...

    async def writable(self) -> None: ...

    async def left(self) -> None: ...

    def abort(self) -> None: ...


class IncomingBody:
    """The half of an `Incoming` that is its request's body."""

    __slots__ = (
        "_bodies",
        "_body_waiter",
        "_bound",
        "_client",
        "_connection",
        "_content_length",
        "_expects_continue",
        "_mark",
        "_max_values",
        "_received",
        "_values",
        "body_bytes",
        "body_complete",
        "content_encoding",
        "taken",
    )

    def __init__(
        self,
        connection: Channel,
        *,
        content_length: int | None,
        content_encoding: bytes | None,
        expects_continue: bool,
    ) -> None:
        self._connection = connection
        self._content_length = content_length
        self.content_encoding = content_encoding
        self._expects_continue = expects_continue
        self.body_bytes = 0  # received
        self.body_complete = False
        # Not a bytearray, which would be copied to become bytes: 60 MiB in 50 ms.
        self._received: bytes | BytesIO = b""
        self._bound: int | None = None  # limit of the body while `body` waits for it
        self._bodies: Bodies | None = None  # all that share the memory, once `body` is called
        self.taken = 0  # bytes of this body that count there
        self._client: str | None = None  # whose body it is, if it is not its address's
        self._max_values: int | None = None
        self._values: JsonValues | None = None  # counts those of a longer body, if bounded
        self._mark = (0.0, 0)  # when a time of the body's rate began, and its bytes then
        self._body_waiter: asyncio.Future[None] | None = None

    async def body(
        self,
        max_bytes: int,
        bodies: Bodies,
        *,
        client: str | None = None,
        max_values: int | None = None,
    ) -> bytes:
        """The whole body.

        Its bytes count among `bodies` as they arrive, until the request has been served, so that a
        declared length alone keeps no other request out. Large bodies are returned one in each turn
        of the event loop.

        Args:
            client: whose body it is, by default the address
            max_values: as `JsonValues` counts them; None for a body that is not JSON

        Raises ApiError 413 before reading if the declared length is above `max_bytes`, otherwise as
        soon as more bytes or values have arrived; 503 likewise if there is no room, or no more
        because others need it; 408 after the time limit, or if it arrives too slowly; 415 for a
        compressed body; and ClientDisconnectedError.
        """
        if (self._content_length or self.body_bytes) > max_bytes:
            raise _too_large(max_bytes)
        if self.content_encoding is not None and self.content_encoding.lower() != b"identity":
            raise ApiError(415, "compressed request bodies are not supported")
        self._client, self._max_values, self._bodies = client, max_values, bodies
        to_come = (self._content_length or 0) - self.body_bytes
        if not self._take_what_came(bodies) or (to_come > 0 and not bodies.has_room(to_come, self)):
            raise _no_room()
        if self.body_bytes > UNCOUNTED_BYTES and (refusal := self._counted(self._so_far())):
            raise refusal
        if not self.body_complete:
            if not bodies.begins(self):
                raise _no_room()
            try:
                await self._rest_of_body(max_bytes)
            finally:
                bodies.ends(self)
        if self.body_bytes > LARGE_BODY:
            await bodies.budget.turn()
        body, self._received = self._so_far(), b""
        return body

    async def _rest_of_body(self, max_bytes: int) -> None:
        if self._connection.gone:
            raise ClientDisconnectedError
        if self._connection.failure is not None:
            raise self._connection.failure
        self._bound = max_bytes
        self._mark = self._connection.loop.time(), self.body_bytes
        self._body_waiter = self._connection.loop.create_future()
        self._connection.want_body(say_continue=self._expects_continue and not self.body_bytes)
        try:
            await self._body_waiter
        finally:
            self._body_waiter = self._bound = None
            self._connection.body_came()

    def _take_what_came(self, bodies: Bodies) -> bool:
        """Counts the received bytes among all bodies'. Returns False if there is no room."""
        if not bodies.take(self.body_bytes - self.taken, self):
            return False
        self.taken = self.body_bytes
        return True

    def _counted(self, chunk: bytes) -> ApiError | None:
        """Counts a chunk's values. Returns the refusal if there are too many now."""
        if self._max_values is None:
            return None
        if self._values is None:
            self._values = JsonValues(self._max_values)
        for start in range(0, len(chunk), UNCOUNTED_BYTES):
            self._values.feed(chunk[start : start + UNCOUNTED_BYTES])
        return _too_many(self._max_values) if self._values.too_many else None

    def bytes_s(self) -> float:
        since, size = self._mark
        elapsed = self._connection.loop.time() - since
        return (self.body_bytes - size) / elapsed if elapsed > _SOON_S else inf

    def new_rate(self) -> float:
        """Bytes per second since the last call, or since `body` was called."""
        (since, size), now = self._mark, self._connection.loop.time()
        self._mark = now, self.body_bytes
        return (self.body_bytes - size) / (now - since)

    def cut(self) -> None:
        """Drops the body, for which there is no room any more."""
        self._received = b""
        self.served()
        self.fail_body(_no_room())

    def served(self) -> None:
        """The request is over; its body takes no room any more."""
        if self._bodies is not None:
            self._bodies.budget.give_back(self.taken)
            if self.body_bytes > UNCOUNTED_BYTES:
                self._bodies.trimmer.soon()
            self._bodies = None
            self.taken = 0

    @property
    def body_is_wanted(self) -> bool:
        return self._body_waiter is not None

    def feed(self, chunk: bytes) -> None:
        before = self.body_bytes
        self.body_bytes += len(chunk)
        if not self._received:
            self._received = chunk
        else:
            # Not a list, in which one-byte chunks would take 40 times their size.
            if isinstance(self._received, bytes):
                first, self._received = self._received, BytesIO()
                self._received.write(first)
            self._received.write(chunk)
        if self._bodies is None:
            return
        if self._bound is not None and self.body_bytes > self._bound:
            self.fail_body(_too_large(self._bound))
        elif not self._take_what_came(self._bodies):
            self.fail_body(_no_room())
        elif self.body_bytes > UNCOUNTED_BYTES:
            uncounted = chunk if before > UNCOUNTED_BYTES else self._so_far()
            if refusal := self._counted(uncounted):
                self.fail_body(refusal)

    def _so_far(self) -> bytes:
        received = self._received
        return received if isinstance(received, bytes) else received.getvalue()

    def body_ended(self) -> None:
        self.body_complete = True
        if self._body_waiter is not None and not self._body_waiter.done():
            self._body_waiter.set_result(None)

    def fail_body(self, error: Exception) -> None:
        if self._body_waiter is not None and not self._body_waiter.done():
            self._body_waiter.set_exception(error)

    @property
    def peer(self) -> tuple[str, int] | None:
        """The client's address and port."""
        return self._connection.peer

    @property
    def client(self) -> str:
        """Whose body it is. Few are asked: only when there is no room for all."""
        if self._client is None:
            self._client = (self.peer or ("", 0))[0]
        return self._client


def _no_room() -> ApiError:
    return unavailable("this server has no memory left for request bodies", "overloaded")


def _too_many(max_values: int) -> ApiError:
    return ApiError(
        413,
        f"the request body has more than {max_values} values, where an object or a list counts as"
        f" {CONTAINER}",
        code="request_too_large",
    )


def _too_large(max_bytes: int) -> ApiError:
    return ApiError(
        413, f"the request body is longer than {max_bytes} bytes", code="request_too_large"
    )
