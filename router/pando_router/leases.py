"""Writes to the shared state that no answer waits for: what becomes of a lease once placed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic

from pando_fleet.client import FleetError
from pando_router.fleet_view import FleetView
from pando_router.metrics import Metrics

MAX_WRITES = 4096  # under way at once
WRITE_TIMEOUT_S = 2.0
LOG_EVERY_S = 10.0

logger = logging.getLogger("pando.router")


class LeaseWriter:
    """Runs writes in the background; one that fails is counted, and its lease ends by itself."""

    def __init__(self, view: FleetView, metrics: Metrics) -> None:
        self._view = view
        self._metrics = metrics
        self._tasks: set[asyncio.Task[None]] = set()
        self._logged_at = -LOG_EVERY_S

    def submit(self, write: Callable[[], Awaitable[None]]) -> None:
        if not self._view.redis_up:
            self.failed("redis is away")
        elif len(self._tasks) >= MAX_WRITES:
            self.failed(f"{MAX_WRITES} writes are under way")
        else:
            task = asyncio.create_task(self._run(write))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def settle(self, timeout_s: float) -> None:
        """Waits for the writes under way, before Redis is disconnected."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def _run(self, write: Callable[[], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await write()
        except (FleetError, TimeoutError) as error:
            self.failed(str(error) or type(error).__name__)

    def failed(self, reason: str, count: int = 1) -> None:
        """Counts writes that were lost, here or in a `Placer`."""
        self._metrics.lease_write_failures.inc(count)
        now = monotonic()
        if now - self._logged_at >= LOG_EVERY_S:
            self._logged_at = now
            logger.warning("a lease was left to expire", extra={"error": reason})
