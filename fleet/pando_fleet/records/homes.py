"""Which replica keeps a response: responses and conversations live in one engine's memory.

A router that relays an answer records its name and its replica. A request that continues from there
goes to the same replica, whichever router receives it.
"""

from typing import cast

from pando_fleet.redis import misfits
from pando_fleet.redis.client import RedisClient, fleet_errors
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.calls import RememberHome
from pando_fleet.redis.scripts import Clock, Script, time_arg

MAX_NAMES = 100_000
"""Names kept per pool, about 25 MB; the least recently used are forgotten."""

MAX_NAME_BYTES = 128
"""A longer name cannot be an engine's."""


class Homes:
    """Every method raises FleetUnavailable if Redis is away."""

    def __init__(
        self, redis: RedisClient, clock: Clock | None = None, max_names: int = MAX_NAMES
    ) -> None:
        self._redis = redis
        self._clock = clock
        self._max_names = max_names
        self._remember = Script(redis, RememberHome)

    async def remember(self, pool: str, names: list[str], incarnation: str) -> None:
        """Records that this incarnation of a replica has answered under these names."""
        usable = [name for name in names if _usable(name)]
        if usable:
            ages, homes = PoolKeys(pool).homes
            call = RememberHome(
                ages=ages,
                homes=homes,
                now=time_arg(self._clock),
                incarnation=incarnation,
                max_names=self._max_names,
            )
            await self._remember(call, *usable)

    async def find(self, pool: str, name: str) -> str | None:
        """The incarnation that answered under this name, if known."""
        if not _usable(name):
            return None
        with fleet_errors():
            found = cast(bytes | None, await self._redis.hget(PoolKeys(pool).homes[1], name))
        return None if found is None else misfits.decode_name("home", found)


def _usable(name: str) -> bool:
    return 0 < len(name.encode()) <= MAX_NAME_BYTES
