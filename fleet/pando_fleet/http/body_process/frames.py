"""Questions and answers on a socket: an object, then bytes.

The bytes are neither pickled nor copied, so the interpreter's lock is free while they are sent and
received. Blocking calls, for threads that do nothing else.
"""

import pickle
import socket
import struct
from typing import Any

_SIZES = struct.Struct("<QQ")


class EndedError(Exception):
    """The other side closed the socket."""


def send(sock: socket.socket, value: object, data: bytes) -> None:
    pickled = pickle.dumps(value)
    sock.sendall(_SIZES.pack(len(pickled), len(data)) + pickled)
    sock.sendall(data)


def receive(sock: socket.socket) -> tuple[Any, bytes]:
    """Raises EndedError."""
    pickled, size = _SIZES.unpack(_exactly(sock, _SIZES.size))
    return pickle.loads(_exactly(sock, pickled)), _exactly(sock, size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    pieces: list[bytes] = []
    while size:
        piece = sock.recv(size, socket.MSG_WAITALL)
        if not piece:
            raise EndedError
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)  # almost always one, which is not copied
