"""Runs a router as one process or several: a server on uvloop, and its shutdown."""

import asyncio
import gc
import logging
import multiprocessing
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

import uvloop

from pando_fleet.free_memory import keep_little_free_memory
from pando_fleet.http.off_loop import give_the_lock_back_soon
from pando_fleet.http.open_files import allow_open_files
from pando_fleet.http.server.server import Server
from pando_router.app import Router, running_router, server_of
from pando_router.configuration.reloader import Reloader, SettingsSource
from pando_router.configuration.settings import RouterSettings
from pando_router.process.processes import supervise
from pando_router.recording.recorder import Part

CUT_S = 1.0  # to close the connections that remain after drain_seconds

GARBAGE = 10_000
"""How many allocated objects trigger a garbage collection. A request allocates about a hundred that
end with it, so Python's default of 700 would collect several times per turn of the event loop."""

logger = logging.getLogger("pando.router")


def run(
    settings: RouterSettings,
    configure_logging: Callable[[], None],
    source: SettingsSource | None = None,
) -> int:
    """Serves until SIGTERM or SIGINT, and returns the exit code.

    After the signal the router is not ready. After SIGTERM it still takes requests for
    `leave_seconds`; running ones may then finish within `drain_seconds`. The exit code is 1 if a
    second signal ended it at once, or if it cannot listen. The `source` of the settings is read
    again on SIGHUP and when its file changes.
    """
    if settings.processes > 1:
        whole = Part.of(settings)  # here, so that all processes share one random secret
        return supervise(settings, configure_logging, partial(_run_sibling, source, whole))
    configure_logging()
    return _run(_serve(settings, source))


def _run_sibling(
    source: SettingsSource | None,
    recording: Part,
    settings: RouterSettings,
    configure_logging: Callable[[], None],
    number: int,
) -> None:
    """Runs in one of several processes that share a port."""
    configure_logging()
    part = replace(recording, number=number)
    sys.exit(_run(_serve(settings, source, share_port=True, part=part)))


def _run(serving: Coroutine[Any, Any, bool]) -> int:
    allow_open_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return 0 if runner.run(serving) else 1


async def _serve(
    settings: RouterSettings,
    source: SettingsSource | None,
    *,
    share_port: bool = False,
    part: Part | None = None,
) -> bool:
    """Serves until a signal. Returns whether the router shut down in order."""
    signals = _Signals()
    async with running_router(settings, part=part) as router:
        server = server_of(router)
        if (fitting := server.limits.now.max_connections) < router.live.settings.max_connections:
            logger.warning(
                "the limit of open files (ulimit -n) allows fewer connections than max_connections",
                extra={"connections": fitting},
            )
        try:
            port = await server.listen(settings.host, settings.port, share_port=share_port)
        except OSError as error:
            logger.error("cannot listen", extra={"error": str(error)})
            return False
        logger.info("listening", extra={"host": settings.host, "port": port})
        _collect_less_garbage()
        keep_little_free_memory()
        give_the_lock_back_soon()
        reloader = Reloader(source, router.live, router.metrics)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloader.now)
        router.background.start("the watch of the settings", reloader.run())
        await signals.first.wait()
        now = router.live.settings
        leave_s = 0.0 if signals.by_hand else now.leave_seconds
        finished = await _drain(router, server, leave_s, now.drain_seconds, signals.second)
        await server.close(CUT_S if finished else 0.0)
        return finished


def _collect_less_garbage() -> None:
    """Exempts the objects that exist now, which live to the end, from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)


async def _drain(
    router: Router, server: Server, leave_s: float, drain_s: float, at_once: asyncio.Event
) -> bool:
    """Drains the router. Returns False if `at_once` was set first.

    The listener stays open meanwhile, so that probes read "not ready" instead of a refused
    connection, and answers ask clients to close theirs.
    """
    lifecycle = router.lifecycle
    logger.info("draining", extra={"requests": lifecycle.requests})
    server.draining = lifecycle.leaving = True

    async def drain() -> None:
        await asyncio.sleep(leave_s)
        await lifecycle.drain(drain_s)

    draining = asyncio.create_task(drain())
    hurry = asyncio.create_task(at_once.wait())
    await asyncio.wait((draining, hurry), return_when=asyncio.FIRST_COMPLETED)
    hurry.cancel()
    if not draining.done():
        draining.cancel()
        return False
    if isinstance(draining.exception(), TimeoutError):
        logger.warning(
            "requests are cut after drain_seconds", extra={"requests": lifecycle.requests}
        )
    return True


class _Signals:
    """SIGTERM and SIGINT, counted; the end of a parent process counts as one."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.by_hand = False  # the first was SIGINT, so no load balancer waits for readiness
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._came, number)
        if (parent := multiprocessing.parent_process()) is not None:
            loop.add_reader(parent.sentinel, self._orphaned, parent.sentinel)

    def _orphaned(self, sentinel: int) -> None:
        asyncio.get_running_loop().remove_reader(sentinel)
        self._came(signal.SIGTERM)

    def _came(self, number: int) -> None:
        if not self.first.is_set():
            self.by_hand = number == signal.SIGINT
        (self.second if self.first.is_set() else self.first).set()
