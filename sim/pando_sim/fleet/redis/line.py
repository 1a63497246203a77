"""`BlockingLine`: a connection to Redis that waits for answers without an event loop.

In virtual time nothing else can happen while an answer is awaited, so a turn of the event loop for
each would be wasted. Commands whose answers nobody waits for are gathered, sent and left to Redis,
which works on another core meanwhile; their answers are read before the next one that is awaited.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Generator
from typing import Any

import hiredis

from pando_fleet.redis.client import FleetError, FleetUnavailable, refusal
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
        self._is_together = False
        self._scripts: set[bytes] = set()
        self._gather(pack(*KEEP), None)

    def send(self, key: str, packed: bytes, answer: Answer, script: bytes = b"") -> None:
        if self.is_away:
            error = FleetUnavailable("Redis is away")
            asyncio.get_running_loop().call_soon(answer, error)
            return
        self._load(script)
        self._gather(packed, answer)
        if len(self._answers) >= MOST_UNREAD:
            self.flush()

    def ask(self, packed: bytes, script: bytes = b"") -> "Asked":
        """Sends a command whose reply is awaited; `script` is loaded first if it is new.

        Raises FleetUnavailable; awaiting it raises the FleetError of a refusal.
        """
        if self.is_away:
            raise FleetUnavailable("Redis is away")
        asked = Asked()
        self._load(script)
        self._gather(packed, asked.hear)
        if not self._is_together:
            self.flush()
        return asked

    def together(self, *works: Awaitable[Any]) -> list[Any]:
        """Runs works that wait for nothing but this line, and for the answers to all of them at
        once; each begins in its turn. Returns their results; raises what the first one raises."""
        results: dict[int, Any] = {}
        open_works = {number: work.__await__() for number, work in enumerate(works)}
        self._is_together = True
        try:
            while open_works:
                for number, work in list(open_works.items()):
                    try:
                        next(work)
                    except StopIteration as end:
                        results[number] = end.value
                        del open_works[number]
                self.flush()
        finally:
            self._is_together = False
            for work in open_works.values():
                work.close()
        return [results[number] for number in range(len(works))]

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

    def _load(self, script: bytes) -> None:
        if script and script not in self._scripts:
            self._scripts.add(script)
            self._gather(script, None)

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


class Asked:
    """The reply to a command, once the line has been flushed."""

    def __init__(self) -> None:
        self._reply: object = _MORE

    def hear(self, reply: object) -> None:
        self._reply = reply

    def __await__(self) -> Generator[None, None, Any]:
        if self._reply is _MORE:
            yield  # to `together`, which goes on once it is there
        if isinstance(self._reply, FleetError):
            raise self._reply
        return self._reply


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
