"""How many requests all routers together have at each replica, by their leases.

A lease lasts from a request's placement to its end, so the count includes requests that are on
their way to a replica and not yet in its heartbeat.
"""

from collections import Counter

from pando_fleet.redis import misfits
from pando_fleet.redis.client import RedisClient
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.calls import ReadLoads
from pando_fleet.redis.scripts import Clock, Script, time_arg


class Loads:
    """The loads of one pool. `read` raises FleetUnavailable if Redis is away."""

    def __init__(self, redis: RedisClient, pool: str, clock: Clock | None = None) -> None:
        self._keys = PoolKeys(pool)
        self._clock = clock
        self._read = Script(redis, ReadLoads)

    async def read(self) -> Counter[str]:
        """Requests by replica, of all its incarnations; ends expired leases."""
        leases, parts, loads = self._keys.leases
        row: list[bytes | int] = await self._read(
            ReadLoads(self._keys.routers, leases, parts, loads, now=time_arg(self._clock))
        )
        found: Counter[str] = Counter()
        for owner, requests in zip(row[::2], row[1::2], strict=True):
            assert isinstance(owner, bytes)
            if (name := misfits.decode_name("load", owner)) is not None:
                _, _, replica = name.partition(":")  # <incarnation>:<replica>
                found[replica] += int(requests)
        return found
