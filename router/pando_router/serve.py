"""Runs a router as a process: a server on uvloop, and an orderly end."""

import asyncio
import logging
import signal
from collections.abc import Callable

import uvloop

from pando_router.app import Router, limits, running_router
from pando_router.http.server import Server
from pando_router.settings import RouterSettings

CUT_S = 1.0  # for what drain_seconds left over

logger = logging.getLogger("pando.router")


def run(settings: RouterSettings, configure_logging: Callable[[], None]) -> int:
    """Serves until SIGTERM or SIGINT: not ready from then on, running requests may finish within
    `drain_seconds`. Returns the exit code: 1 where a second signal ended it at once, or where it
    cannot listen."""
    configure_logging()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        finished = runner.run(_serve(settings))
    return 0 if finished else 1


async def _serve(settings: RouterSettings) -> bool:
    """Whether the router ended in order."""
    signals = _Signals()
    async with running_router(settings) as router:
        server = Server(router, limits(settings))
        try:
            port = await server.listen(settings.host, settings.port)
        except OSError as error:
            logger.error("cannot listen", extra={"error": str(error)})
            return False
        logger.info("listening", extra={"host": settings.host, "port": port})
        await signals.first.wait()
        finished = await _drain(router, server, settings.drain_seconds, signals.second)
        await server.close(CUT_S if finished else 0.0)
        return finished


async def _drain(
    router: Router, server: Server, drain_seconds: float, at_once: asyncio.Event
) -> bool:
    """Whether nobody said `at_once`. The listener stays open meanwhile, so that probes read "not
    ready", not a refused connection, and answers tell clients to move on."""
    lifecycle = router.lifecycle
    logger.info("draining", extra={"requests": lifecycle.requests})
    server.draining = True
    draining = asyncio.create_task(lifecycle.drain(drain_seconds))
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
    """SIGTERM and SIGINT, counted."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._came)

    def _came(self) -> None:
        (self.second if self.first.is_set() else self.first).set()
