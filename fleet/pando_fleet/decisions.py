"""The last scaling decisions of each pool, as the operator made them, for routers to show.

One row a pool, written by the operator when a decision is made and removed with the pool.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import cast

from pando_fleet.client import RedisClient, fleet_errors
from pando_fleet.keys import DECISIONS, PoolKeys
from pando_fleet.rows import put_row

KEPT = 10
"""Decisions of a pool."""

_log = logging.getLogger("pando.fleet")


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDecision:
    """One change of the number of replicas that is wanted."""

    at_s: float  # since 1970, by the operator's clock
    before: int
    after: int
    reason: str


class PastDecisions:
    """Every method raises FleetUnavailable where Redis is away."""

    def __init__(self, redis: RedisClient) -> None:
        self._redis = redis

    async def put(self, pool: str, decisions: Sequence[PastDecision]) -> None:
        """Those of the pool from now on, newest first; only the first KEPT are."""
        PoolKeys(pool)  # a name that can be one
        row = json.dumps([asdict(decision) for decision in decisions[:KEPT]])
        await put_row(self._redis, DECISIONS, pool, row)

    async def remove(self, pool: str) -> None:
        with fleet_errors():
            await self._redis.hdel(DECISIONS, pool)

    async def read(self) -> dict[str, tuple[PastDecision, ...]]:
        """By pool, newest first."""
        with fleet_errors():
            rows = cast(dict[bytes, bytes], await self._redis.hgetall(DECISIONS))
        found = {}
        for pool, encoded in sorted(rows.items()):
            try:
                found[pool.decode()] = tuple(
                    PastDecision(
                        at_s=float(one["at_s"]),
                        before=int(one["before"]),
                        after=int(one["after"]),
                        reason=str(one["reason"]),
                    )
                    for one in json.loads(encoded)
                )
            except (ValueError, KeyError, TypeError) as error:
                extra = {"pool": pool, "row": encoded, "error": str(error)}
                _log.warning("scaling decisions not understood", extra=extra)
        return found
