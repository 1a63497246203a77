"""Runs several router processes on one port: starts, watches, restarts and ends them.

The kernel distributes connections over them (SO_REUSEPORT). Routers share their state in Redis
anyway, so the processes are independent; only their metrics are joined.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.process import BaseProcess
from tempfile import TemporaryDirectory
from time import monotonic

from pando_fleet.http.listener import EVERYWHERE, bound_everywhere
from pando_router.configuration.settings import RouterSettings
from pando_router.process.kept import Kept
from pando_router.telemetry import shared_metrics

STARTING_S = 10.0  # a process may take this long until it handles signals

Child = Callable[[RouterSettings, Callable[[], None], int], None]

logger = logging.getLogger("pando.router")


def supervise(settings: RouterSettings, configure_logging: Callable[[], None], child: Child) -> int:
    """Runs `child(settings, configure_logging, number)` in settings.processes processes until
    SIGTERM or SIGINT. Returns the exit code: 0 if all of them ended in order."""
    configure_logging()
    try:
        with _reserved(settings.host, settings.port) as port, TemporaryDirectory() as metrics:
            os.environ[shared_metrics.DIRECTORY] = metrics
            settings = settings.model_copy(update={"port": port})
            return asyncio.run(_keep_all(settings, configure_logging, child))
    except OSError as error:
        logger.error("cannot listen", extra={"error": str(error)})
        return 1


@contextmanager
def _reserved(host: str, port: int) -> Iterator[int]:
    """Reserves the port, or a free one for 0, without listening. Raises OSError."""
    if host == EVERYWHERE:
        with bound_everywhere(port, share_port=True) as reserved:
            yield reserved.getsockname()[1]
        return
    (family, kind, protocol, _, address), *_ = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with socket.socket(family, kind, protocol) as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(address)
        yield reserved.getsockname()[1]


class _Sibling:
    """One of the processes, in the form that `Kept` expects."""

    def __init__(self, process: BaseProcess, number: int) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.terminate, self.kill = process.terminate, process.kill
        self.pid = process.pid
        self._process, self._number = process, number
        self._started = monotonic()
        loop.add_reader(process.sentinel, self._has_ended)

    def reload(self) -> None:
        """Makes the process read its settings. One that is just starting reads them anyway, and
        does not handle signals yet."""
        if self.pid and monotonic() - self._started >= STARTING_S:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGHUP)

    def _has_ended(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        shared_metrics.leave(self._number)
        self.ended.set_result(None)

    @property
    def code(self) -> int | None:
        return self._process.exitcode


async def _keep_all(
    settings: RouterSettings, configure_logging: Callable[[], None], child: Child
) -> int:
    # Spawned, because a fork would share Python's open files and threads.
    context = multiprocessing.get_context("spawn")

    async def begin(number: int) -> _Sibling:
        process = context.Process(target=_main, args=(child, settings, configure_logging, number))
        process.start()
        return _Sibling(process, number)

    every = [
        Kept(f"router process {number}", partial(begin, number), partial(_crashed, number))
        for number in range(settings.processes)
    ]

    def end() -> None:
        """The first signal lets the processes finish their requests, the second ends them now."""
        for kept in every:
            kept.terminate()

    def reload() -> None:
        for kept in every:
            if kept.process is not None:
                kept.process.reload()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        last = await asyncio.gather(*(kept.start() for kept in every))
    finally:
        for kept in every:
            kept.kill()
    # A process that had not begun to serve is ended by the signal itself.
    return int(any(one.code not in (0, -signal.SIGTERM) for one in last))


def _crashed(number: int, process: _Sibling, pause_s: float) -> None:
    logger.error(
        "a router process died and is restarted",
        extra={"number": number, "pid": process.pid, "code": process.code, "in_s": pause_s},
    )


def _main(
    child: Child, settings: RouterSettings, configure_logging: Callable[[], None], number: int
) -> None:
    # The parent forwards signals from the terminal; otherwise they would count twice.
    os.setpgrp()
    shared_metrics.join(number)
    child(settings, configure_logging, number)
