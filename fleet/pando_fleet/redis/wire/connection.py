"""One connection: each turn of the event loop is sent in one write; replies arrive in order.

A caller that has given up leaves its `Call` in the queue, so that its reply is still counted and
all others get theirs. If no answer arrives for `TIMEOUT_S`, the connection is closed: replies have
an order, so no later one could arrive before the late one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import cast

import hiredis

from pando_fleet.redis.client import TIMEOUT_S, FleetError, FleetUnavailable
from pando_fleet.redis.wire.call import Call, Reply
from pando_fleet.redis.wire.directory import Address

SECOND_LOOK_S = 0.02
"""An event loop that hung may see its timer before the bytes that have arrived meanwhile."""

MAX_UNSENT_BYTES = 4 << 20
"""Above it the server reads too slowly, and further calls are refused."""

_MORE = object()


class Refused(Exception):  # noqa: N818  (hiredis wants an exception; it is never raised)
    """An error reply, in the server's words."""

    def __init__(self, message: str) -> None:
        self.message = message


class Connection(asyncio.Protocol):
    """Calls `replied(call, reply)` for each call in the order of `send`, with a `Refused` if the
    server answers with an error; and `lost(calls, late)` once, with all unanswered calls."""

    def __init__(
        self,
        replied: Callable[["Connection", Call, Reply], None],
        lost: Callable[["Connection", list[Call], bool], None],
    ) -> None:
        self._replied = replied
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(replyError=Refused, notEnoughData=_MORE)
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []
        self._calls: deque[Call] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._overdue: Call | None = None
        self._late = False
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.is_open = False
        self.is_full = False
        self.scripts: set[bytes] = set()  # packed SCRIPT LOADs that were sent here

    def send(self, call: Call) -> None:
        call.sent_at = self._loop.time()
        self._calls.append(call)
        self._unsent.append(call.packed)
        if len(self._unsent) == 1:
            self._loop.call_soon(self.flush)
        if self._watch is None:
            self._watch = self._loop.call_later(TIMEOUT_S, self._look)

    def close(self) -> None:
        """Reports unanswered calls through `lost`, in a later turn of the loop."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def flush(self) -> None:
        """Writes what this turn has gathered so far, without waiting for its end."""
        packed, self._unsent = self._unsent, []
        if packed and self._transport is not None and not self._transport.is_closing():
            self._transport.write(packed[0] if len(packed) == 1 else b"".join(packed))

    def _look(self) -> None:
        """Checks the oldest unanswered call, with one timer for all."""
        self._watch = None
        if not self._calls:
            return
        oldest = self._calls[0]
        left_s = oldest.sent_at + TIMEOUT_S - self._loop.time()
        if left_s <= 0:
            if self._overdue is oldest:
                self._late = True
                self.close()
                return
            self._overdue, left_s = oldest, SECOND_LOOK_S
        self._watch = self._loop.call_later(left_s, self._look)

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has another class
        self._transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not _MORE:
            if not self._calls:
                self.close()  # the server sent an answer without a call
                return
            self._replied(self, self._calls.popleft(), reply)

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._watch is not None:
            self._watch.cancel()
        calls = list(self._calls)
        self._calls.clear()
        self._lost(self, calls, self._late)
        self.closed.set_result(None)


async def open_connection(
    address: Address,
    replied: Callable[[Connection, Call, Reply], None],
    lost: Callable[[Connection, list[Call], bool], None],
) -> Connection:
    """Connects and authenticates. Raises FleetUnavailable; no message contains a password."""
    loop = asyncio.get_running_loop()

    def make() -> Connection:
        return Connection(replied, lost)

    try:
        async with asyncio.timeout(TIMEOUT_S):
            if address.path:
                _, connection = await loop.create_unix_connection(make, address.path)
            else:
                tls = address.tls() if address.tls else None
                _, connection = await loop.create_connection(
                    make, address.host, address.port, ssl=tls
                )
            try:
                await _introduce(connection, address)
            except BaseException:
                connection.close()
                raise
    except TimeoutError:
        raise FleetUnavailable(f"Redis is not available: {address} did not answer") from None
    except OSError as error:  # includes ssl.SSLError
        raise FleetUnavailable(f"Redis is not available: {address}: {error}") from error
    return connection


async def _introduce(connection: Connection, address: Address) -> None:
    """Sends AUTH and SELECT, as the address requires."""
    replies: list[asyncio.Future[Reply]] = []
    for packed in address.greeting:
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        connection.send(Call("", packed, partial(_settle, reply)))
        replies.append(reply)
    for reply in replies:
        said = await reply
        if isinstance(said, FleetError):  # also wrong credentials, which may be corrected there
            raise FleetUnavailable(f"{address}: {said}")


def _settle(reply: asyncio.Future[Reply], said: Reply) -> None:
    if not reply.done():  # the time to connect may be over when the closed connection answers
        reply.set_result(said)
