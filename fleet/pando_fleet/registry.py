"""Who lives: heartbeats of the replicas of each pool, aged by Redis's own clock."""

from collections.abc import Callable

from pando_fleet.client import RedisClient
from pando_fleet.replica import Heartbeat, Replica

FRESH_MS = 3_000
"""A replica whose last heartbeat is older gets no requests: six beats missed."""

RETENTION_MS = 60_000
"""A replica that fell silent stays listed this long, so that people can see it as lost."""


class Registry:
    """Heartbeats in and out. `clock` (milliseconds) stands in for Redis's TIME in simulations."""

    def __init__(self, redis: RedisClient, clock: Callable[[], int] | None = None) -> None:
        raise NotImplementedError

    async def beat(self, pool: str, heartbeat: Heartbeat) -> None:
        """Records the heartbeat under `pool` with Redis's time."""
        raise NotImplementedError

    async def leave(self, pool: str, replica: str, incarnation: str) -> None:
        """Removes a replica and its tree at once, unless a newer incarnation has taken its name."""
        raise NotImplementedError

    async def pools(self) -> list[str]:
        """Names of the pools heard of within the retention, sorted."""
        raise NotImplementedError

    async def replicas(self, pool: str) -> list[Replica]:
        """Replicas of `pool` heard of within the retention, sorted by name; one round trip."""
        raise NotImplementedError
