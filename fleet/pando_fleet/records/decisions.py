"""The last scaling decisions of each pool, written by the operator and shown by routers.

There is one row per pool; it is written at each decision and removed with the pool.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pando_fleet.records.rows import PoolRows
from pando_fleet.redis.client import RedisClient
from pando_fleet.redis.keys import DECISIONS

KEPT = 10
"""Decisions kept per pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDecision:
    """One change of a pool's wanted number of replicas."""

    at_s: float  # Unix time, by the operator's clock
    before: int
    after: int
    reason: str


_ROW = msgspec.json.Decoder(tuple[PastDecision, ...])


class PastDecisions:
    """Every method raises FleetUnavailable if Redis is away."""

    def __init__(self, redis: RedisClient) -> None:
        self._rows = PoolRows(redis, DECISIONS, "scaling_decisions", _ROW)

    async def put(self, pool: str, decisions: Sequence[PastDecision]) -> None:
        """Replaces the pool's decisions, newest first; only the first KEPT are kept."""
        await self._rows.put(pool, tuple(decisions[:KEPT]))

    async def remove(self, pool: str) -> None:
        await self._rows.remove(pool)

    async def read(self) -> dict[str, tuple[PastDecision, ...]]:
        """By pool, newest first."""
        return await self._rows.read()
