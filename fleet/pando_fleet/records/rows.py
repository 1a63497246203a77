"""Rows that the operator writes, one a pool in a hash for all pools.

It writes them again and again while it lives, so the hash ends by itself when nobody does any more:
an operator that was uninstalled leaves nothing behind for ever in a Redis that others use, too.
"""

from typing import Generic, TypeVar, cast

import msgspec

from pando_fleet.redis import misfits
from pando_fleet.redis.client import RedisClient, fleet_errors
from pando_fleet.redis.keys import PoolKeys, pool_name

LAST_S = 24 * 3600
"""After the last word of any operator; by far longer than one is away."""

Row = TypeVar("Row")


class PoolRows(Generic[Row]):
    """The hash `key` of rows as JSON; `kind` is what a row that does not fit is counted as.

    Every method raises FleetUnavailable where Redis is away.
    """

    def __init__(
        self, redis: RedisClient, key: str, kind: str, decoder: msgspec.json.Decoder[Row]
    ) -> None:
        self._redis, self._key, self._kind, self._decoder = redis, key, kind, decoder

    async def put(self, pool: str, row: Row) -> None:
        """Raises FleetError where the name cannot be a pool's."""
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
        """By pool, in the order of their names, without rows that do not fit."""
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
