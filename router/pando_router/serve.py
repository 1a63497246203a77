"""Runs a router as a process: uvicorn with uvloop and httptools, and an orderly end."""

import asyncio
import logging
from collections.abc import Callable
from types import FrameType

import uvicorn
import uvloop

from pando_router.app import Router, running_router
from pando_router.settings import RouterSettings

logger = logging.getLogger("pando.router")


def run(settings: RouterSettings, configure_logging: Callable[[], None]) -> int:
    """Serves until SIGTERM or SIGINT: not ready from then on, running requests may finish within
    `drain_seconds`. Returns the exit code: 1 where a second signal ended it at once."""
    configure_logging()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        finished = runner.run(_serve(settings))
    return 0 if finished else 1


async def _serve(settings: RouterSettings) -> bool:
    """Whether the router ended in order."""
    async with running_router(settings) as router:
        server = _Server(router, settings)
        await server.serve()
        return not server.force_exit


class _Server(uvicorn.Server):
    """uvicorn, with draining in front of its own shutdown.

    Its listener stays open meanwhile, so that probes read "not ready", not a refused connection.
    """

    def __init__(self, router: Router, settings: RouterSettings) -> None:
        super().__init__(
            uvicorn.Config(
                router,
                host=settings.host,
                port=settings.port,
                http="httptools",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,  # clients' addresses decide nothing here
                # The replicas' own are passed on.
                server_header=False,
                date_header=False,
                # What drain_seconds left over is cut.
                timeout_graceful_shutdown=1,
            )
        )
        self._router = router
        self._drain_seconds = settings.drain_seconds
        self._loop = asyncio.get_running_loop()
        self._draining: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._draining is None:
            self._draining = self._loop.create_task(self._drain())
        else:
            self.force_exit = self.should_exit = True

    async def _drain(self) -> None:
        logger.info("draining", extra={"requests": self._router.lifecycle.requests})
        try:
            await self._router.lifecycle.drain(self._drain_seconds)
        except TimeoutError:
            logger.warning(
                "requests are cut after drain_seconds",
                extra={"requests": self._router.lifecycle.requests},
            )
        self.should_exit = True
