"""Reports this router's queue lengths to Redis and reads those of other routers.

The operator wakes sleeping pools by these reports, and routers share freed places by them. Nothing
is sent while no request waits.
"""

import asyncio
import logging

from pando_fleet.records.queues import Queues
from pando_fleet.redis.client import FleetError
from pando_router.admission.admission import Admission

EVERY_S = 0.25  # while requests wait; the first one is reported at once
TIMEOUT_S = 1.0

logger = logging.getLogger("pando.router")


class QueueReports:
    def __init__(self, queues: Queues, admission: Admission, router: str) -> None:
        """`router` is this router's name."""
        self._queues = queues
        self._admission = admission
        self._router = router
        self._reported: set[str] = set()  # pools whose length in Redis is above 0

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            if not self._reported:
                await self._admission.until_waiting()
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._exchange()
            except (FleetError, TimeoutError) as error:
                self._admission.learn({})
                logger.debug("queue lengths were not reported", extra={"error": str(error)})
            await asyncio.sleep(EVERY_S)

    async def _exchange(self) -> None:
        lengths = self._admission.lengths()
        elsewhere: dict[str, int] = {}
        for pool in sorted(lengths.keys() | self._reported):
            length = lengths.get(pool, 0)
            if not length and pool not in self._reported:
                continue
            waited_ms = int(1000 * self._admission.longest_wait_s(pool))
            tokens = self._admission.waiting_tokens(pool)
            await self._queues.report(pool, self._router, length, waited_ms, tokens)
            if not length:
                self._reported.discard(pool)
                continue
            self._reported.add(pool)
            elsewhere[pool] = max(0, (await self._queues.read(pool)).requests - length)
        self._admission.learn(elsewhere)
