"""The border to Redis: makes a client from a URL, and defines the errors of this package."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
    parse_url,
)
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import ConstantBackoff

from pando_fleet.redis.connections import (
    CertifiedConnection,
    Route,
    SentinelMaster,
    SentinelTlsMaster,
    TcpMaster,
    TlsMaster,
    UnixMaster,
)
from pando_fleet.redis.refusals import NEEDS_CLUSTER_URL, PASSING, REFUSED_WRITE, refusal_word
from pando_fleet.redis.url_form import UNREADABLE, WRONG_SCHEME

RedisClient = Redis | RedisCluster

TIMEOUT_S = 1.0
"""For connecting and for each answer; a slower placement would be worse than none."""

MAX_CONNECTIONS = 64
"""Connections of one client to one server; further calls wait for one up to TIMEOUT_S."""

MAX_CONNECTIONS_UNQUEUED = 512
"""The same for Sentinel and Cluster, whose pools refuse further calls instead of queueing them."""

_UNAVAILABLE = (
    exceptions.ConnectionError,  # also wrong credentials, loading, no master among Sentinels
    exceptions.TimeoutError,
    exceptions.ClusterError,
    exceptions.RedisClusterException,
    exceptions.MasterDownError,
    exceptions.TryAgainError,
)


class FleetError(Exception):
    """An operation of this package failed; the message says why and never contains a password."""


class FleetUnavailable(FleetError):  # noqa: N818  (a state of the world, not a mistake)
    """Redis cannot be reached or cannot answer now; the call may be repeated later."""


class FleetReadOnly(FleetUnavailable):
    """Redis answers reads but refuses writes; the message says why, and what to do."""


class FleetFull(FleetReadOnly):
    """Redis's memory is full: it refuses writes that need more, but no heartbeats and leases."""


def refusal(message: str) -> FleetError:
    """The error for a refused command."""
    word = refusal_word(message)
    if (why := REFUSED_WRITE.get(word)) is not None:
        error = FleetFull if word == "OOM" else FleetReadOnly
        return error(f"Redis refuses writes: {why} ({message})")
    if word in PASSING or "max number of clients" in message:
        return FleetUnavailable(f"Redis is not available: {message}")
    return FleetError(f"Redis refused a command: {message}")


_TAKEN: dict[type[exceptions.RedisError], str] = {
    exceptions.ReadOnlyError: "READONLY ",
    exceptions.OutOfMemoryError: "OOM ",
}
"""redis-py removes these from messages."""


@contextmanager
def fleet_errors() -> Iterator[None]:
    """Wraps each call to redis-py: translates its errors, and preserves cancellations.

    redis-py (6, 7 and 8) writes within asyncio.wait_for, which before Python 3.12 loses a
    cancellation that arrives together with its result; asyncio.timeout cancels in the same way. The
    task still knows of it, so it is raised here. Remove this with the support of Python 3.11.
    """
    task = asyncio.current_task()
    requests = task.cancelling() if task is not None else 0
    try:
        yield
    except exceptions.AskError as error:  # also MOVED; a cluster's client follows both
        raise FleetUnavailable(f"Redis is not available: {NEEDS_CLUSTER_URL}") from error
    except MasterNotFoundError as error:  # its message has clients, in some versions passwords
        what = str(error).partition(" : ")[0]
        why = f"{what}: no Sentinel answers, or none knows one that is up"
        raise FleetUnavailable(f"Redis is not available: {why}") from error
    except _UNAVAILABLE as error:
        raise FleetUnavailable(f"Redis is not available: {error}") from error
    except exceptions.RedisError as error:
        raise refusal(f"{_TAKEN.get(type(error), '')}{error}") from error
    finally:
        if task is not None and task.cancelling() > requests:
            raise asyncio.CancelledError


def connect(url: str) -> RedisClient:
    """A client for `url`; it connects at the first command, not here.

    redis://[user:password@]host:port/db, rediss:// (TLS), unix:///path/to/socket,
    redis+sentinel://[user:password@]host:port,host:port/master[/db][?sentinel_password=...],
    redis+cluster://[user:password@]host:port,host:port; the last two with rediss+ for TLS. With TLS
    all take ?ssl_ca_certs=/file&ssl_certfile=/file&ssl_keyfile=/file.

    Raises FleetError if the URL has another form.
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
        # Neither chained nor quoted, because the parsers' messages may contain parts of the
        # password.
        raise FleetError(UNREADABLE) from None
    raise FleetError(WRONG_SCHEME)


def _settings() -> dict[str, Any]:
    # One retry, and only if the connection broke or led to no master, which a restarted Redis or a
    # failover leaves behind in the pool. A slow Redis is not asked twice.
    again = (exceptions.ConnectionError, exceptions.ReadOnlyError, exceptions.MasterDownError)
    retry = Retry(ConstantBackoff(0), 1, supported_errors=again)
    return {"socket_connect_timeout": TIMEOUT_S, "socket_timeout": TIMEOUT_S, "retry": retry}


_MASTERS: dict[type[AbstractConnection], type[AbstractConnection]] = {
    Connection: TcpMaster,
    SSLConnection: TlsMaster,
    UnixDomainSocketConnection: UnixMaster,
}


def _single(url: str) -> RedisClient:
    settings = _settings() | {"max_connections": MAX_CONNECTIONS, "timeout": TIMEOUT_S}
    settings |= parse_url(url)
    connection_class = _MASTERS[settings.pop("connection_class", Connection)]
    pool = BlockingConnectionPool(connection_class=connection_class, route=Route(), **settings)
    return Redis.from_pool(pool)


def _sentinel(parts: SplitResult) -> RedisClient:
    master, _, db = parts.path.strip("/").partition("/")
    if not master:
        raise FleetError("a redis+sentinel URL must name the master in its path: .../mymaster")
    tls = parts.scheme == "rediss+sentinel"
    options = _options(parts, tls, "sentinel_password")
    watching = {"password": options.pop("sentinel_password", None)} | options | _settings()
    sentinel = Sentinel([])  # type: ignore[no-untyped-call]
    sentinel.sentinels = [
        Redis.from_pool(
            ConnectionPool(
                connection_class=CertifiedConnection if tls else Connection,
                host=host,
                port=port,
                **watching,
            )
        )
        for host, port in _hosts(parts, 26379)
    ]
    client: Redis = sentinel.master_for(
        master,
        db=int(db or 0),
        connection_class=SentinelTlsMaster if tls else SentinelMaster,
        route=Route(),
        max_connections=MAX_CONNECTIONS_UNQUEUED,
        **options,
        **_credentials(parts),
        **_settings(),
    )
    return client


def _cluster(parts: SplitResult) -> RedisClient:
    if parts.path.strip("/"):
        raise FleetError("a redis+cluster URL must have no path: a cluster has one database")
    tls = parts.scheme == "rediss+cluster"
    client = RedisCluster(
        startup_nodes=[ClusterNode(host, port) for host, port in _hosts(parts, 6379)],
        ssl=tls,
        max_connections=MAX_CONNECTIONS_UNQUEUED,
        **_options(parts, tls),
        **_credentials(parts),
        **_settings(),
    )
    if tls:  # it accepts no connection class, but creates its nodes with this one
        nodes = client.nodes_manager
        nodes.connection_kwargs["connection_class"] = CertifiedConnection
        for node in nodes.startup_nodes.values():
            node.connection_class = CertifiedConnection
    return client


_TLS_OPTIONS = (
    "ssl_ca_certs",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_keyfile",
)


def _options(parts: SplitResult, tls: bool, *more: str) -> dict[str, Any]:
    """The options after the URL's "?"; values are those of redis-py."""
    allowed = (*more, *(_TLS_OPTIONS if tls else ()))
    names = parse_qs(parts.query, strict_parsing=bool(parts.query))
    if wrong := sorted(names.keys() - set(allowed)):
        takes = ", ".join(allowed) if allowed else "no options"
        raise FleetError(f"a {parts.scheme} URL takes {takes}, not {wrong}")
    return dict(parse_url(f"redis://?{parts.query}"))


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
