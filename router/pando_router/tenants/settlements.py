"""Writes the difference between used and reserved tokens to Redis, outside any request's path.

The differences of a few milliseconds are summed for each tenant, so at most one write per tenant is
pending.
"""

import asyncio
import logging

from pando_fleet.records.limits import Limits
from pando_fleet.records.rate_limits import RateLimits
from pando_fleet.redis.client import FleetError
from pando_router.api_keys.tenant import Tenant
from pando_router.telemetry.tenant_metrics import TenantMetrics

GATHER_S = 0.02
WRITE_TIMEOUT_S = 2.0

logger = logging.getLogger("pando.router")


class Settlements:
    def __init__(self, rates: RateLimits, metrics: TenantMetrics) -> None:
        self._rates = rates
        self._metrics = metrics
        self._sums: dict[str, tuple[Limits, int]] = {}  # by tenant
        self._writing: asyncio.Task[None] | None = None

    def add(self, tenant: Tenant, tokens: int) -> None:
        _, before = self._sums.get(tenant.name, (tenant.limits, 0))
        self._sums[tenant.name] = tenant.limits, before + tokens
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def settle(self, timeout_s: float) -> None:
        """Waits for pending writes, before Redis is disconnected."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=timeout_s)

    async def _write(self) -> None:
        try:
            while self._sums:
                await asyncio.sleep(GATHER_S)
                sums, self._sums = self._sums, {}
                await asyncio.gather(*(self._settle(name, *sum) for name, sum in sums.items()))
        finally:
            self._writing = None

    async def _settle(self, tenant: str, limits: Limits, tokens: int) -> None:
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await self._rates.settle(tenant, limits, tokens)
        except (FleetError, TimeoutError) as error:
            self._metrics.lost_settlements.inc()
            logger.debug("tokens were not settled", extra={"error": str(error)})
