"""Bursts of chats over connections that stay open: the bodies that `load.py` sends, or longer."""

import selectors
import socket

from bench.router.routing.load import SYSTEM_BYTES, SYSTEM_PROMPTS
from bench.router.routing.routers import MODEL

CONNECTIONS = 32

_BODY = (
    '{"model":"%s","messages":[{"role":"system","content":"%s"},'
    '{"role":"user","content":"question %d%s"}]}'
)
_HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
)


class Bursts:
    """A client of the server at this port. Each of its requests has a user's message of its own,
    after one of 50 system prompts."""

    def __init__(self, port: int, system_bytes: int = SYSTEM_BYTES) -> None:
        self._systems = [
            f"prompt {number} " + "You are a helpful assistant. " * (system_bytes // 29)
            for number in range(1, SYSTEM_PROMPTS + 1)
        ]
        self._count = 0
        self._selector = selectors.DefaultSelector()
        self._connections = [
            socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)
        ]
        for connection in self._connections:
            self._selector.register(connection, selectors.EVENT_READ)

    def requests(self, count: int) -> list[bytes]:
        """So many that were not sent before, and at least one for each connection."""
        return [self._request() for _ in range(max(count, CONNECTIONS))]

    def answer(self, requests: list[bytes]) -> None:
        """Sends all, one at a time on each connection. RuntimeError where one is refused."""
        left = len(requests)
        for connection in self._connections:
            connection.sendall(requests.pop())
        while left:
            for key, _ in self._selector.select():
                readable = key.fileobj
                assert isinstance(readable, socket.socket)
                answer = readable.recv(65536)  # short enough to arrive as a whole
                if not answer.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"the router answered {answer[:300]!r}")
                left -= 1
                if requests:
                    readable.sendall(requests.pop())

    def _request(self) -> bytes:
        self._count += 1
        system = self._systems[self._count % SYSTEM_PROMPTS]
        body = _BODY % (MODEL, system, self._count, " and what then?" * 20)
        return _HEAD % len(body) + body.encode()
