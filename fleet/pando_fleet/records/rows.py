"""Rows that the operator writes: a hash for all pools, with one row per pool.

The operator rewrites the rows while it runs, and the hash expires when nobody does any more. So an
operator that was uninstalled leaves nothing behind in a Redis that others use, too.
"""

from typing import Generic, TypeVar, cast

import msgspec

from pando_fleet.redis import misfits
from pando_fleet.redis.client import RedisClient, fleet_errors
from pando_fleet.redis.keys import PoolKeys, pool_name

LAST_S = 24 * 3600
"""After the last write of any operator; far longer than an operator is ever away."""

Row = TypeVar("Row")


class PoolRows(Generic[Row]):
    """The hash `key` of rows as JSON; an invalid row is counted as a misfit of `kind`.

    Every method raises FleetUnavailable if Redis is away.
    """

    def __init__(
        self, redis: RedisClient, key: str, kind: str, decoder: msgspec.json.Decoder[Row]
    ) -> None:
        self._redis, self._key, self._kind, self._decoder = redis, key, kind, decoder

    async def put(self, pool: str, row: Row) -> None:
        """Raises FleetError if the name is not valid for a pool."""
        PoolKeys(pool)
        with fleet_errors():
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.hset(self._key, pool, msgspec.json.encode(row))
                pipe.expire(self._key, LAST_S)
                await pipe.execute()

    async def remove(self, pool: str) -> None:
        with fleet_errors():
            await self._redis.hdel(self._key, pool)

    async def read(self) -> dict[str, Row]:
        """Rows by pool, sorted by name, without invalid rows."""
        with fleet_errors():
            rows = cast(dict[bytes, bytes], await self._redis.hgetall(self._key))
        found = {}
        for name, encoded in sorted(rows.items()):
            if (pool := pool_name(name)) is None:
                continue
            row = misfits.decode(self._kind, pool, encoded, self._decoder)
            if row is not None:
                found[pool] = row
        return found
