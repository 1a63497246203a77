"""Each pool's placer: this router's way to the shared placement, and its writes to Redis."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from pando_fleet.placement import Placer
from pando_fleet.settling import Failed
from pando_fleet.wire import Wire
from pando_router.live import Live

SETTLED_S = 0.1


class Placers:
    """`of` a pool; made when first asked for."""

    def __init__(self, wire: Wire, live: Live, write_failed: Failed) -> None:
        """Calls `write_failed` with what could not be written to Redis."""
        self._wire = wire
        self._live = live
        self._write_failed = write_failed
        self._placers: dict[str, Placer] = {}

    def of(self, pool: str) -> Placer:
        if pool not in self._placers:
            self._placers[pool] = Placer(
                self._wire,
                pool,
                failed=self._write_failed,
                timeout_s=lambda: self._live.settings.placement_timeout,
            )
        return self._placers[pool]

    async def settle(self, timeout_s: float) -> None:
        """Writes what is queued for Redis, before it is disconnected."""
        await asyncio.gather(*(placer.settle(timeout_s) for placer in self._placers.values()))

    async def settled(self, pools: Iterable[str]) -> None:
        """Returns when what this router wrote of these pools until now is in Redis, or after
        SETTLED_S."""
        placers = (self._placers.get(pool) for pool in pools)
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLED_S):
                for placer in filter(None, placers):
                    await placer.flush()
