"""Which replica keeps a response: recorded in Redis while the answer is relayed, and found."""

import asyncio

from pando_fleet.records.homes import Homes
from pando_fleet.redis.client import FleetError, FleetUnavailable
from pando_router.fleet_view.redis_state import RedisState
from pando_router.fleet_view.view import FleetView
from pando_router.telemetry.bounded_log import BoundedLog
from pando_router.telemetry.metrics import Metrics

MAX_WRITES = 4096  # pending at once
WRITE_TIMEOUT_S = 2.0


class ResponseHomes:
    """Counts failed writes: requests that continue such a response may go to any replica."""

    def __init__(self, homes: Homes, view: FleetView, metrics: Metrics) -> None:
        self._homes = homes
        self._view = view
        self._failures = metrics.home_write_failures
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing: dict[tuple[str, str], str] = {}  # incarnations, by pool and name
        self._log = BoundedLog("a response's replica was not remembered")

    def remember(self, pool: str, names: list[str], incarnation: str) -> None:
        if not self._view.is_up(pool):
            self._failed(f"redis is {self._view.redis.of(pool).value}")
        elif len(self._tasks) >= MAX_WRITES:
            self._failed(f"{MAX_WRITES} writes are pending")
        else:
            self._writing.update({(pool, name): incarnation for name in names})
            task = asyncio.create_task(self._write(pool, names, incarnation))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def find(self, pool: str, name: str, within_s: float) -> str | None:
        """The incarnation that answered under this name, if known. Raises FleetUnavailable.

        Redis need not know it yet: a client can go on from an answer before it is written there.
        """
        if home := self._writing.get((pool, name)):
            return home
        if self._view.redis.of(pool) is RedisState.AWAY:
            raise FleetUnavailable("Redis is away")
        try:
            async with asyncio.timeout(within_s):
                return await self._homes.find(pool, name)
        except (FleetError, TimeoutError) as error:
            self._view.redis.failed(pool, error)
            raise FleetUnavailable(str(error)) from error

    async def settle(self, timeout_s: float) -> None:
        """Waits for pending writes, before the connection to Redis closes."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def _write(self, pool: str, names: list[str], incarnation: str) -> None:
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._homes.remember(pool, names, incarnation)
        except (FleetError, TimeoutError) as error:
            self._failed(str(error) or type(error).__name__)
        finally:
            for name in names:
                self._writing.pop((pool, name), None)

    def _failed(self, reason: str) -> None:
        self._failures.inc()
        self._log(error=reason)
