"""Each pool's placer and keeper: access to the shared placement, and this router's leases."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

from pando_fleet.placement.keeper import BEAT_S, Keeper
from pando_fleet.placement.placer import Placer
from pando_fleet.placement.settling import Failed
from pando_fleet.redis.client import FleetError
from pando_fleet.redis.wire import Wire
from pando_router.configuration.live import Live
from pando_router.fleet_view.rounds import Rounds

SETTLED_S = 0.1

logger = logging.getLogger("pando.router")


class _Pool(NamedTuple):
    placer: Placer
    keeper: Keeper


class Placers:
    """The placers by pool, created on first use."""

    def __init__(self, wire: Wire, live: Live, router: str, write_failed: Failed) -> None:
        """`router` is this router's name, the prefix of its leases. Calls `write_failed` for
        updates that did not reach Redis."""
        self.router = router
        self._wire = wire
        self._live = live
        self._write_failed = write_failed
        self._pools: dict[str, _Pool] = {}

    def of(self, pool: str) -> Placer:
        if pool not in self._pools:
            placer = Placer(
                self._wire,
                pool,
                failed=self._write_failed,
                timeout_s=lambda: self._live.settings.placement_timeout,
            )
            keeper = Keeper(self._wire, placer, pool, self.router)
            self._pools[pool] = _Pool(placer, keeper)
        return self._pools[pool].placer

    async def keep_leases(self) -> None:
        """Renews this router's leases and ends those of dead routers, until cancelled."""
        looks = Rounds(self._look)  # a hanging server must not make other pools' routers look dead
        try:
            while True:
                await asyncio.sleep(BEAT_S)
                await looks.begin(self._pools, patience_s=0.0)
        finally:
            await looks.close()

    async def settle(self, timeout_s: float) -> None:
        """Writes what is queued for Redis, before the connection closes."""
        await asyncio.gather(*(self._settle(pool, timeout_s) for pool in self._pools.values()))

    async def settled(self, pools: Iterable[str]) -> None:
        """Returns when this router's earlier writes for these pools are in Redis, at most after
        SETTLED_S."""
        found = (self._pools.get(pool) for pool in pools)
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLED_S):
                for pool in filter(None, found):
                    await pool.placer.flush()

    async def _look(self, pool: str) -> None:
        lease_ms = int(self._live.settings.lease_seconds * 1000)
        try:
            seen = await self._pools[pool].keeper.look(monotonic(), lease_ms)
        except FleetError as error:
            logger.debug("leases were not checked", extra={"pool": pool, "error": str(error)})
            return
        if seen.unknown:
            extra = {"pool": pool, "leases": seen.unknown}
            logger.warning("leases that no request held were released", extra=extra)
        if seen.reaped:
            extra = {"pool": pool, "leases": seen.reaped, "routers": seen.dead}
            logger.warning("leases of routers that died were ended", extra=extra)

    async def _settle(self, pool: _Pool, timeout_s: float) -> None:
        await pool.placer.settle(timeout_s)
        with suppress(FleetError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                await pool.keeper.leave()
