"""Tells a client that has closed its side only (`shutdown(SHUT_WR)`) from one that has left.

Both look the same at first: the end of the input. But the system of a client that has left resets
the connection as soon as it gets another byte. So until the answer has begun, the server sends an
interim answer, 100 Continue, which every client of HTTP/1.1 must skip (RFC 9110, 15.2). Then it
looks at the state of the socket, because a transport that has read the end of its input does not
report a reset. Once the answer has begun, its own bytes do the same as the interim answer; if none
follow within LOOK_EVERY_S after the end of the input, the client counts as one that has left.
"""

import asyncio
import socket
from typing import Protocol

FIRST_LOOK_S = 0.05  # a reset takes one round trip
LOOK_EVERY_S = 1.0

INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"

can_look = hasattr(socket, "TCP_INFO")
"""Elsewhere than on Linux the end of the input counts as a disconnect."""

_HALF_CLOSED = 8  # TCP_CLOSE_WAIT in Linux's tcp_states.h: the client's side is closed, ours is not


class HalfClosed(Protocol):
    loop: asyncio.AbstractEventLoop
    gone: bool
    wrote: bool  # since the client ended its input

    @property
    def answer_has_begun(self) -> bool: ...

    def write(self, data: bytes) -> None: ...

    def abort(self) -> None: ...


def watch_for_reset(connection: HalfClosed, transport: asyncio.Transport) -> None:
    """Aborts the connection as soon as it turns out that its client has left."""
    if connection.answer_has_begun:
        connection.loop.call_later(LOOK_EVERY_S, _look, connection, transport)
    else:
        connection.write(INTERIM)
        connection.loop.call_later(FIRST_LOOK_S, _look, connection, transport)


def _look(connection: HalfClosed, transport: asyncio.Transport) -> None:
    if connection.gone or transport.is_closing():
        return
    begun = connection.answer_has_begun
    if _is_reset(transport) or (begun and not connection.wrote):
        connection.abort()
        return
    if not begun:
        connection.write(INTERIM)
    connection.loop.call_later(LOOK_EVERY_S, _look, connection, transport)


def _is_reset(transport: asyncio.Transport) -> bool:
    """Whether a client that has ended its input has closed the connection."""
    connection: socket.socket = transport.get_extra_info("socket")
    try:
        state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:  # the descriptor is closed
        return True
    return state != _HALF_CLOSED
