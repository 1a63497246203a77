"""The border to Redis: opening a client from a URL, and the errors that leave this package."""

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster

RedisClient = Redis | RedisCluster


class FleetError(Exception):
    """Something this package cannot do; the message says what and never holds a password."""


class FleetUnavailable(FleetError):  # noqa: N818  (a state of the world, not a mistake)
    """Redis cannot be reached or cannot answer now; the call may be tried again later."""


def connect(url: str) -> RedisClient:
    """A client for `url`; it opens connections at the first command, not here."""
    raise NotImplementedError
