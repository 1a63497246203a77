"""`BodyProcess`: a process for large bodies, which exists only while there are some."""

import asyncio
import logging
import os
import socket
import struct
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pando_fleet.http.body_process import answers
from pando_fleet.http.body_process.frames import EndedError, receive, send
from pando_fleet.http.errors import ApiError, unavailable

IDLE_S = 10.0
"""After which the process ends. To start one takes about a quarter of a second of CPU time."""

ANSWER_S = 60.0
"""For each part of an answer. The most costly body takes some seconds on a busy core."""

logger = logging.getLogger("pando.http")


class BodyProcess:
    """Asks one question after the other."""

    def __init__(self, module: str, *, idle_s: float = IDLE_S, answer_s: float = ANSWER_S) -> None:
        """
        Args:
            module: has the function `answer`, which the process calls with question and body
        """
        self._module = module
        self._idle_s = idle_s
        self._answer_s = answer_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="body-process")
        self._running: _Running | None = None  # touched by that thread only, until `close`
        self._lock = threading.Lock()  # of starts and of the end
        self._closed = False
        self._asked = 0  # questions without an answer yet
        self._end: asyncio.TimerHandle | None = None

    async def ask(self, question: object, body: bytes) -> tuple[Any, bytes]:
        """What the module answers, a value and bytes. Raises what it raises, and ApiError 503 if
        the process ends before it has answered, or takes too long."""
        if self._closed:
            raise _draining()
        loop = asyncio.get_running_loop()
        if self._end is not None:
            self._end.cancel()
            self._end = None
        self._asked += 1
        try:
            value, data = await loop.run_in_executor(self._thread, self._ask, question, body)
        finally:
            self._asked -= 1
            if not self._asked and not self._closed:
                self._end = loop.call_later(self._idle_s, self._thread.submit, self._stop)
        if isinstance(value, Exception):
            raise value
        return value, data

    @property
    def pid(self) -> int | None:
        """None if there is no process now."""
        running = self._running
        return running.process.pid if running else None

    def close(self) -> None:
        """Ends the process, also one that works; its question and those that wait get 503."""
        if self._end is not None:
            self._end.cancel()
        with self._lock:
            self._closed = True
            if running := self._running:
                running.process.kill()
        self._thread.submit(self._stop)
        self._thread.shutdown(wait=False)

    def _ask(self, question: object, body: bytes) -> tuple[Any, bytes]:
        if self._running is not None and self._running.process.poll() is not None:
            self._stop()  # it was killed while it had nothing to do
        with self._lock:
            if self._closed:
                raise _draining()
            if self._running is None:
                self._running = self._started()
            running = self._running
        try:
            send(running.socket, question, body)
            return receive(running.socket)
        except (EndedError, OSError) as error:
            running.process.kill()
            code = running.process.wait()
            self._stop()
            why = "takes too long" if isinstance(error, BlockingIOError) else "ended"
            message = f"the process that reads large bodies {why}"
            if not self._closed:
                logger.warning(message, extra={"exit_code": code})
            raise unavailable(message, "body_not_read") from error

    def _started(self) -> "_Running":
        try:
            return _Running(self._module, self._answer_s)
        except OSError as error:  # there are too many processes, or files
            message = "no process that reads large bodies can be started"
            logger.warning(message, extra={"error": str(error)})
            raise unavailable(message, "body_not_read") from error

    def _stop(self) -> None:
        if self._running is not None:
            self._running.stop()
            self._running = None


def _draining() -> ApiError:
    return unavailable("this process is shutting down", "draining")


class _Running:
    def __init__(self, module: str, answer_s: float) -> None:
        self.socket, theirs = socket.socketpair()
        # The socket stays one that blocks: only then does one call receive all of a large answer.
        whole, part = divmod(answer_s, 1)
        limit = struct.pack("ll", int(whole), int(part * 1e6))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", answers.__name__, module],
                stdin=theirs.fileno(),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            )

    def stop(self) -> None:
        """The process ends when its socket does."""
        self.socket.close()
        self.process.wait()
