"""The operator's last scaling decisions, for /fleet and the dashboard: read on demand, at most once
a second."""

import asyncio
from dataclasses import asdict
from time import monotonic
from typing import Any

from pando_fleet.records.decisions import PastDecisions
from pando_fleet.redis.client import FleetError

AGE_S = 1.0
READ_TIMEOUT_S = 0.5


class DecisionsView:
    def __init__(self, past: PastDecisions) -> None:
        self._past = past
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._read_at = float("-inf")

    async def rows(self) -> dict[str, list[dict[str, Any]]]:
        """By pool, newest first; the last ones known while Redis is away."""
        now = monotonic()
        if now - self._read_at >= AGE_S:
            self._read_at = now
            try:
                async with asyncio.timeout(READ_TIMEOUT_S):
                    past = await self._past.read()
            except (FleetError, TimeoutError):
                return self._rows  # the page also shows that Redis is away
            self._rows = {pool: [asdict(one) for one in row] for pool, row in past.items()}
        return self._rows
