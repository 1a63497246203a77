"""Tells Redis how much waits here for each pool, and learns how many wait elsewhere.

The operator wakes a sleeping pool by it; routers leave each other places by it. While nobody waits
nothing is sent.
"""

import asyncio
import logging

from pando_fleet.records.queues import Queues
from pando_fleet.redis.client import FleetError
from pando_router.admission.admission import Admission

EVERY_S = 0.25  # while somebody waits; the first one is told at once
TIMEOUT_S = 1.0

logger = logging.getLogger("pando.router")


class QueueReports:
    def __init__(self, queues: Queues, admission: Admission, router: str) -> None:
        """`router` is this one's name."""
        self._queues = queues
        self._admission = admission
        self._router = router
        self._told: set[str] = set()  # pools that Redis has a length above 0 of

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if not self._told:
                await self._admission.somebody_waits()
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._exchange()
            except (FleetError, TimeoutError) as error:
                self._admission.learn({})
                logger.debug("queue lengths were not told", extra={"error": str(error)})
            await asyncio.sleep(EVERY_S)

    async def _exchange(self) -> None:
        lengths = self._admission.lengths()
        elsewhere: dict[str, int] = {}
        for pool in sorted(lengths.keys() | self._told):
            length = lengths.get(pool, 0)
            if not length and pool not in self._told:
                continue
            waited_ms = int(1000 * self._admission.longest_wait_s(pool))
            tokens = self._admission.waiting_tokens(pool)
            await self._queues.tell(pool, self._router, length, waited_ms, tokens)
            if not length:
                self._told.discard(pool)
                continue
            self._told.add(pool)
            elsewhere[pool] = max(0, (await self._queues.read(pool)).requests - length)
        self._admission.learn(elsewhere)
