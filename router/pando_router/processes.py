"""Several router processes on one port: started, watched, started again, and ended together.

The kernel spreads connections over them (SO_REUSEPORT). What routers share is in Redis anyway, so
they know nothing of each other; only their metrics are joined.
"""

import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from types import FrameType

from pando_router import shared_metrics
from pando_router.settings import RouterSettings

BACKOFF_S = 0.5  # before a process that died is started again; doubled each time, up to
MAX_BACKOFF_S = 30.0
STEADY_S = 60.0  # who lived so long starts from BACKOFF_S again
STARTING_S = 10.0  # in which a process may not have come to listen to signals
TURN_S = 0.25  # how long a signal may wait while no process runs

Child = Callable[[RouterSettings, Callable[[], None], int], None]

logger = logging.getLogger("pando.router")


def supervise(settings: RouterSettings, configure_logging: Callable[[], None], child: Child) -> int:
    """Runs `child(settings, configure_logging, number)` in settings.processes processes until
    SIGTERM or SIGINT. Returns the exit code: 0 where all of them then ended in order."""
    configure_logging()
    try:
        with _reserved(settings.host, settings.port) as port, TemporaryDirectory() as metrics:
            os.environ[shared_metrics.DIRECTORY] = metrics
            settings = settings.model_copy(update={"port": port})
            return _Supervisor(settings, configure_logging, child).run()
    except OSError as error:
        logger.error("cannot listen", extra={"error": str(error)})
        return 1


@contextmanager
def _reserved(host: str, port: int) -> Iterator[int]:
    """Keeps the port, picked where it is 0, without listening. Raises OSError."""
    (family, kind, protocol, _, address), *_ = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with socket.socket(family, kind, protocol) as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(address)
        yield reserved.getsockname()[1]


@dataclass(slots=True)
class _Place:
    """One of the processes, or the wait for its successor."""

    number: int
    process: BaseProcess | None = None
    started: float = 0.0
    start_at: float = 0.0
    backoff_s: float = BACKOFF_S


class _Supervisor:
    def __init__(
        self, settings: RouterSettings, configure_logging: Callable[[], None], child: Child
    ) -> None:
        # Not forked: a fork would share what Python has open and running.
        self._context = multiprocessing.get_context("spawn")
        self._child = (child, settings, configure_logging)
        self._places = [_Place(number) for number in range(settings.processes)]
        self._ending = False
        self._in_order = True

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        signal.signal(signal.SIGHUP, self._reload)
        try:
            while True:
                if not self._ending:
                    self._start_due()
                running = {p.process.sentinel: p for p in self._places if p.process is not None}
                if self._ending and not running:
                    return 0 if self._in_order else 1
                for sentinel in wait(list(running), TURN_S) if running else ():
                    assert isinstance(sentinel, int)
                    self._ended(running[sentinel])
                if not running:
                    sleep(TURN_S)
        finally:
            for place in self._places:
                if place.process is not None:
                    place.process.kill()

    def _start_due(self) -> None:
        now = monotonic()
        for place in self._places:
            if place.process is None and now >= place.start_at:
                process = self._context.Process(target=_main, args=(*self._child, place.number))
                process.start()
                place.process, place.started = process, now
                if self._ending:  # the signal came just before there was anyone to tell
                    process.terminate()

    def _ended(self, place: _Place) -> None:
        assert place.process is not None
        place.process.join()
        code, pid = place.process.exitcode, place.process.pid
        place.process = None
        shared_metrics.leave(place.number)
        if self._ending:
            # One that had not begun to serve ends by the signal itself.
            self._in_order = self._in_order and code in (0, -signal.SIGTERM)
            return
        now = monotonic()
        if now - place.started >= STEADY_S:
            place.backoff_s = BACKOFF_S
        place.start_at = now + place.backoff_s
        logger.error(
            "a router process died, another takes its place",
            extra={"number": place.number, "pid": pid, "code": code, "in_s": place.backoff_s},
        )
        place.backoff_s = min(2 * place.backoff_s, MAX_BACKOFF_S)

    def _reload(self, number: int, frame: FrameType | None) -> None:
        """Settings are for the processes to read; those that are just starting will anyway, and
        do not listen to signals yet."""
        now = monotonic()
        for place in self._places:
            process = place.process
            if process is not None and process.pid and now - place.started >= STARTING_S:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGHUP)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        """The first one lets them finish what runs, the second ends them at once."""
        self._ending = True
        for place in self._places:
            if place.process is not None and place.process.is_alive():
                place.process.terminate()


def _main(
    child: Child, settings: RouterSettings, configure_logging: Callable[[], None], number: int
) -> None:
    # Signals from the terminal are the parent's to pass on: they would count twice.
    os.setpgrp()
    shared_metrics.join(number)
    child(settings, configure_logging, number)
