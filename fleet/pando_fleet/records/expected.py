"""Pools that exist whether or not they have replicas now, with the models that they serve.

The operator writes them as long as a pool exists. Routers read them, so that a request for a pool
scaled to zero waits for it to wake instead of being refused for an unknown model.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from pando_fleet.records.rows import PoolRows
from pando_fleet.redis.client import FleetError, RedisClient
from pando_fleet.redis.keys import EXPECTED


class _Expected(msgspec.Struct, frozen=True):
    models: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1)], ...], msgspec.Meta(min_length=1)
    ]
    owner: str = ""


class ExpectedPools:
    """Every method raises FleetUnavailable if Redis is away."""

    def __init__(self, redis: RedisClient) -> None:
        self._rows = PoolRows(redis, EXPECTED, "expected_pool", msgspec.json.Decoder(_Expected))

    async def put(self, pool: str, models: Sequence[str], owner: str = "") -> None:
        """Records that the pool of `owner` exists and serves these models or adapters. Raises
        FleetError without models."""
        if not models or not all(models):
            raise FleetError(f"pool {pool!r} is expected to serve models with names, not {models}")
        await self._rows.put(pool, _Expected(tuple(models), owner))

    async def remove(self, pool: str) -> None:
        """The pool no longer exists."""
        await self._rows.remove(pool)

    async def read(self) -> dict[str, tuple[str, ...]]:
        """The models that each pool serves, by pool."""
        return {pool: row.models for pool, row in (await self._rows.read()).items()}

    async def owners(self) -> dict[str, str]:
        """The owner of each pool, by pool; empty if none was recorded."""
        return {pool: row.owner for pool, row in (await self._rows.read()).items()}
