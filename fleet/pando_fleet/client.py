"""The border to Redis: opening a client from a URL, and the errors that leave this package."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import ConstantBackoff

RedisClient = Redis | RedisCluster

TIMEOUT_S = 1.0
"""For connecting and for each answer: a placement that takes longer is worse than none."""

MAX_CONNECTIONS = 64
"""Of one client to one server; further calls wait for a connection up to TIMEOUT_S."""

MAX_CONNECTIONS_UNQUEUED = 512
"""The same for Sentinel and Cluster, whose pools refuse further calls instead of queueing them."""

_UNAVAILABLE = (
    exceptions.ConnectionError,  # with wrong credentials, loading, and no master among Sentinels
    exceptions.TimeoutError,
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
    exceptions.ClusterError,
    exceptions.RedisClusterException,
    exceptions.MasterDownError,
    exceptions.TryAgainError,
)


class FleetError(Exception):
    """Something this package cannot do; the message says what and never holds a password."""


class FleetUnavailable(FleetError):  # noqa: N818  (a state of the world, not a mistake)
    """Redis cannot be reached or cannot answer now; the call may be tried again later."""


@contextmanager
def fleet_errors() -> Iterator[None]:
    """Around each call to redis-py: its errors become this package's, and no cancellation is lost.

    redis-py (all of 6, 7 and 8) writes within asyncio.wait_for, which before Python 3.12 loses a
    cancellation that comes together with its result; asyncio.timeout cancels in the same way. The
    task still knows, so it is raised here. Delete this with the support of Python 3.11.
    """
    task = asyncio.current_task()
    requests = task.cancelling() if task is not None else 0
    try:
        yield
    except _UNAVAILABLE as error:
        raise FleetUnavailable(f"Redis is not available: {error}") from error
    except exceptions.RedisError as error:
        raise FleetError(f"Redis refused a command: {error}") from error
    finally:
        if task is not None and task.cancelling() > requests:
            raise asyncio.CancelledError


def readable(url: str) -> str:
    """The URL, for settings. Raises ValueError for one that `connect` cannot read."""
    try:
        connect(url)
    except FleetError as error:
        raise ValueError(str(error)) from None
    return url


def connect(url: str) -> RedisClient:
    """A client for `url`; it opens connections at the first command, not here.

    redis://[user:password@]host:port/db, rediss:// (TLS), unix:///path/to/socket,
    redis+sentinel://[user:password@]host:port,host:port/master[/db][?sentinel_password=...],
    redis+cluster://[user:password@]host:port,host:port; the last two with rediss+ for TLS.

    Raises FleetError where the URL has another form.
    """
    try:
        parts = urlsplit(url)
        match parts.scheme:
            case "redis" | "rediss" | "unix":
                return _single(url)
            case "redis+sentinel" | "rediss+sentinel":
                return _sentinel(parts)
            case "redis+cluster" | "rediss+cluster":
                return _cluster(parts)
    except ValueError:
        # Not chained and not quoted: the parsers' messages may hold parts of the password.
        raise FleetError(
            "the Redis URL cannot be read; a password's special characters must be percent-encoded"
        ) from None
    raise FleetError(
        f"a Redis URL starts with redis, rediss, unix, redis+sentinel or redis+cluster, "
        f"not {parts.scheme!r}"
    )


def _settings() -> dict[str, Any]:
    # One more try, and only where the connection broke: that is what a restarted Redis leaves
    # behind in the pool. A slow Redis is not asked twice.
    retry = Retry(ConstantBackoff(0), 1, supported_errors=(exceptions.ConnectionError,))
    return {"socket_connect_timeout": TIMEOUT_S, "socket_timeout": TIMEOUT_S, "retry": retry}


def _single(url: str) -> RedisClient:
    pool = BlockingConnectionPool.from_url(
        url, max_connections=MAX_CONNECTIONS, timeout=TIMEOUT_S, **_settings()
    )
    return Redis.from_pool(pool)


def _sentinel(parts: SplitResult) -> RedisClient:
    master, _, db = parts.path.strip("/").partition("/")
    if not master:
        raise FleetError("a redis+sentinel URL names the master in its path: .../mymaster")
    options = parse_qs(parts.query, strict_parsing=bool(parts.query))
    password = options.pop("sentinel_password", [None])[0]
    if options:
        raise FleetError(f"a redis+sentinel URL takes sentinel_password, not {sorted(options)}")
    tls = parts.scheme == "rediss+sentinel"
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        _hosts(parts, 26379), sentinel_kwargs={**_settings(), "password": password, "ssl": tls}
    )
    client: Redis = sentinel.master_for(
        master,
        db=int(db or 0),
        ssl=tls,
        max_connections=MAX_CONNECTIONS_UNQUEUED,
        **_credentials(parts),
        **_settings(),
    )
    return client


def _cluster(parts: SplitResult) -> RedisClient:
    if parts.path.strip("/") or parts.query:
        raise FleetError(
            "a redis+cluster URL has no path and no options: a cluster has one database"
        )
    return RedisCluster(
        startup_nodes=[ClusterNode(host, port) for host, port in _hosts(parts, 6379)],
        ssl=parts.scheme == "rediss+cluster",
        max_connections=MAX_CONNECTIONS_UNQUEUED,
        **_credentials(parts),
        **_settings(),
    )


def _credentials(parts: SplitResult) -> dict[str, Any]:
    return {
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
    }


def _hosts(parts: SplitResult, default_port: int) -> list[tuple[str, int]]:
    """Hosts and ports of "host:port,host:port", which urlsplit leaves joined."""
    hosts = []
    for item in parts.netloc.rpartition("@")[2].split(","):
        one = urlsplit(f"//{item}")
        if not one.hostname:
            raise FleetError(f"a host is missing in {item!r}")
        hosts.append((one.hostname, one.port or default_port))
    return hosts
