"""`BlockingLine`: a connection to Redis that waits for answers without an event loop.

In virtual time nothing else can happen while an answer is awaited, so a turn of the event loop for
each would be wasted. Commands whose answers nobody waits for are gathered, sent and left to Redis,
which works on another core meanwhile; their answers are read before the next one that is awaited.
"""

import asyncio
import socket
from collections import deque

import hiredis

from pando_fleet.redis.client import FleetUnavailable, refusal
from pando_fleet.redis.wire.call import Answer, Line, pack
from pando_fleet.redis.wire.connection import Refused
from pando_sim.fleet.redis.server import KEEP

MOST_UNREAD = 512
"""Most unread answers; all of them fit into the socket's buffer."""

GATHERED_BYTES = 16_384
"""Bytes that are sent at once: a system call per command takes longer than making the command."""

_MORE = object()


class BlockingLine:
    """Like `Wire`, to a server on a Unix socket that always answers. Everything sent on it reaches
    Redis in that order."""

    def __init__(self, path: str) -> None:
        self.is_away = False  # then nobody gets an answer
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(path)
        self._reader = hiredis.Reader(replyError=Refused, notEnoughData=_MORE)
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._answers: deque[Answer | None] = deque()
        self._scripts: set[bytes] = set()
        self._gather(pack(*KEEP), None)

    def send(self, key: str, packed: bytes, answer: Answer, script: bytes = b"") -> None:
        if self.is_away:
            error = FleetUnavailable("Redis is away")
            asyncio.get_running_loop().call_soon(answer, error)
            return
        if script and script not in self._scripts:
            self._scripts.add(script)
            self._gather(script, None)
        self._gather(packed, answer)
        if len(self._answers) >= MOST_UNREAD:
            self.flush()

    def flush(self) -> None:
        """Returns when everything that was sent has been answered.

        Raises FleetUnavailable if the server has ended.
        """
        self._push()
        while self._answers:
            reply = self._reader.gets()
            while reply is _MORE:
                data = self._socket.recv(65_536)
                if not data:
                    raise FleetUnavailable("the simulation's Redis has ended")
                self._reader.feed(data)
                reply = self._reader.gets()
            answer = self._answers.popleft()
            if isinstance(reply, Refused):
                reply = refusal(reply.message)
                if answer is None:
                    raise reply
            if answer is not None:
                answer(reply)

    def _gather(self, packed: bytes, answer: Answer | None) -> None:
        self._gathered.append(packed)
        self._gathered_bytes += len(packed)
        self._answers.append(answer)
        if self._gathered_bytes >= GATHERED_BYTES:
            self._push()

    def _push(self) -> None:
        if self._gathered:
            self._socket.sendall(b"".join(self._gathered))
            self._gathered.clear()
            self._gathered_bytes = 0

    def close(self) -> None:
        self._socket.close()


class WaitedLine:
    """The same line, for code that awaits answers and leaves flushing to the line, as on a
    `Wire`."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def send(self, key: str, packed: bytes, answer: Answer, script: bytes = b"") -> None:
        self._line.send(key, packed, answer, script)
        asyncio.get_running_loop().call_soon(self._line.flush)

    def flush(self) -> None:
        self._line.flush()
