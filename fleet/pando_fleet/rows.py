"""Rows that the operator writes, one a pool in a hash for all pools.

It writes them again and again while it lives, so the hash ends by itself when nobody does any more:
an operator that was uninstalled leaves nothing behind for ever in a Redis that others use, too.
"""

from pando_fleet.client import RedisClient, fleet_errors

LAST_S = 24 * 3600
"""After the last word of any operator; by far longer than one is away."""


async def put_row(redis: RedisClient, key: str, pool: str, row: str) -> None:
    """Raises FleetError."""
    with fleet_errors():
        async with redis.pipeline(transaction=False) as pipe:
            pipe.hset(key, pool, row)
            pipe.expire(key, LAST_S)
            await pipe.execute()
