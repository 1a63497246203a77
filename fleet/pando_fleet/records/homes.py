"""Which replica remembers what: responses and conversations live in one engine's memory.

A router that relays an answer remembers its name and who gave it, and sends what goes on from there
to the same replica, whichever router it comes to.
"""

from typing import cast

from pando_fleet.redis import misfits
from pando_fleet.redis.client import RedisClient, fleet_errors
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.calls import RememberHome
from pando_fleet.redis.scripts import Clock, Script, time_arg

MAX_NAMES = 100_000
"""Names of one pool at most, about 25 MB; those used longest ago are forgotten."""

MAX_NAME_BYTES = 128
"""What is longer is no name that an engine made."""


class Homes:
    """Every method raises FleetUnavailable where Redis is away."""

    def __init__(
        self, redis: RedisClient, clock: Clock | None = None, max_names: int = MAX_NAMES
    ) -> None:
        self._redis = redis
        self._clock = clock
        self._max_names = max_names
        self._remember = Script(redis, RememberHome)

    async def remember(self, pool: str, names: list[str], incarnation: str) -> None:
        """That this incarnation of a replica has answered under these names."""
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
        """The incarnation that has answered under this name, as far as is known."""
        if not _usable(name):
            return None
        with fleet_errors():
            found = cast(bytes | None, await self._redis.hget(PoolKeys(pool).homes[1], name))
        return None if found is None else misfits.decode_name("home", found)


def _usable(name: str) -> bool:
    return 0 < len(name.encode()) <= MAX_NAME_BYTES
