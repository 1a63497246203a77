"""Pools that exist whether or not they have replicas now, with the models that they serve.

The operator says so for as long as a pool exists; routers read it, so that a request for a pool
that was scaled to zero waits for it to wake and is not refused as one for an unknown model.
"""

import json
import logging
from collections.abc import Sequence
from typing import cast

from pando_fleet.client import FleetError, RedisClient, fleet_errors
from pando_fleet.keys import EXPECTED, PoolKeys
from pando_fleet.rows import put_row

_log = logging.getLogger("pando.fleet")


class ExpectedPools:
    """Every method raises FleetUnavailable where Redis is away."""

    def __init__(self, redis: RedisClient) -> None:
        self._redis = redis

    async def put(self, pool: str, models: Sequence[str], owner: str = "") -> None:
        """The pool exists, and serves these models or adapters, by the word of `owner`. Raises
        FleetError for no models."""
        PoolKeys(pool)  # a name that can be one
        if not models or not all(models):
            raise FleetError(f"pool {pool!r} is expected to serve models with names, not {models}")
        row = json.dumps({"models": list(models), "owner": owner})
        await put_row(self._redis, EXPECTED, pool, row)

    async def remove(self, pool: str) -> None:
        """The pool exists no more."""
        with fleet_errors():
            await self._redis.hdel(EXPECTED, pool)

    async def read(self) -> dict[str, tuple[str, ...]]:
        """By pool the models that it serves."""
        return {pool: models for pool, (models, _) in (await self._rows()).items()}

    async def owners(self) -> dict[str, str]:
        """By pool who put it there; empty where that was not said."""
        return {pool: owner for pool, (_, owner) in (await self._rows()).items()}

    async def _rows(self) -> dict[str, tuple[tuple[str, ...], str]]:
        with fleet_errors():
            rows = cast(dict[bytes, bytes], await self._redis.hgetall(EXPECTED))
        found = {}
        for pool, encoded in sorted(rows.items()):
            try:
                row = json.loads(encoded)
                found[pool.decode()] = tuple(map(str, row["models"])), str(row.get("owner", ""))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                extra = {"pool": pool, "entry": encoded, "error": str(error)}
                _log.warning("expected pool not understood", extra=extra)
        return found
