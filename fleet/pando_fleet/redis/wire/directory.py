"""Which server holds a key: the URL's, the one that Sentinels call master, or a cluster's node.

redis-py finds it, with the same settings as its own connections; this module only reads it out.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.exceptions import SlotNotCoveredError

from pando_fleet.redis.client import FleetUnavailable, RedisClient, fleet_errors
from pando_fleet.redis.connections import CertifiedConnection, Route
from pando_fleet.redis.wire.call import pack


@dataclass(frozen=True, slots=True, eq=False)
class Address:
    """Where a server listens and how to log in; its text contains no secret."""

    host: str
    port: int
    path: str  # of a Unix socket, or ''
    tls: Callable[[], ssl.SSLContext] | None = field(repr=False)  # reads the files anew
    greeting: tuple[bytes, ...] = field(repr=False)  # packed AUTH and SELECT

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


class Directory(Protocol):
    """Finds servers. The same server is the same `Address` object until `refresh`."""

    is_cluster: bool

    def lookup(self, key: str) -> Address | None:
        """The server of `key`; None if `refresh` must find it first."""

    async def refresh(self) -> None:
        """Finds the servers again, and makes redis-py's connections do so. Raises FleetUnavailable,
        FleetError."""


def directory_of(redis: RedisClient) -> Directory:
    if isinstance(redis, RedisCluster):
        return _Cluster(redis)
    if isinstance(redis.connection_pool, SentinelConnectionPool):
        return _Sentinel(redis)
    return _Fixed(redis)


class _Fixed:
    is_cluster = False

    def __init__(self, redis: Redis) -> None:
        pool = redis.connection_pool
        self._route: Route = pool.connection_kwargs["route"]
        self._address = _address(pool.connection_class, pool.connection_kwargs)

    def lookup(self, key: str) -> Address | None:
        return self._address

    async def refresh(self) -> None:
        self._route.leave()  # each new connection resolves the name


class _Sentinel:
    is_cluster = False

    def __init__(self, redis: Redis) -> None:
        pool = redis.connection_pool
        assert isinstance(pool, SentinelConnectionPool)
        self._pool = pool
        self._route: Route = pool.connection_kwargs["route"]
        self._address: Address | None = None

    def lookup(self, key: str) -> Address | None:
        return self._address

    async def refresh(self) -> None:
        with fleet_errors():
            host, port = await self._pool.get_master_address()  # type: ignore[no-untyped-call]
        known = self._address
        if known is None or (known.host, known.port) != (host, port):
            where = {**self._pool.connection_kwargs, "host": host, "port": port}
            self._address = _address(self._pool.connection_class, where)
            self._route.leave()


class _Cluster:
    is_cluster = True

    def __init__(self, redis: RedisCluster) -> None:
        self._redis = redis
        self._ready = False
        self._addresses: dict[tuple[str, int], Address] = {}  # as many as there are nodes

    def lookup(self, key: str) -> Address | None:
        if not self._ready:
            return None
        try:
            node = self._redis.nodes_manager.get_node_from_slot(self._redis.keyslot(key))
        except SlotNotCoveredError:
            return None
        return self._addresses.get((node.host, int(node.port)))

    async def refresh(self) -> None:
        with fleet_errors():
            if self._ready:
                await self._redis.nodes_manager.initialize()
            else:
                await self._redis.initialize()
        nodes = {(node.host, int(node.port)): node for node in self._redis.get_nodes()}
        self._addresses = {
            where: self._addresses.get(where) or self._node(node) for where, node in nodes.items()
        }
        self._ready = True

    def _node(self, node: ClusterNode) -> Address:
        return _address(
            node.connection_class,
            {**node.connection_kwargs, "host": node.host, "port": node.port},
        )


def _address(connection_class: type, settings: dict[str, Any]) -> Address:
    """Reads the address from the settings with which redis-py would open a connection."""
    tls = None
    if issubclass(connection_class, CertifiedConnection):
        tls = connection_class(**settings).context
    greeting = []
    if password := settings.get("password"):
        username = settings.get("username")
        greeting.append(pack("AUTH", *((username,) if username else ()), password))
    if db := settings.get("db"):
        greeting.append(pack("SELECT", int(db)))
    path = settings.get("path") or ""
    if not path and not settings.get("host"):
        raise FleetUnavailable("Redis is not available: its URL names no host")
    return Address(
        host=str(settings.get("host") or ""),
        port=int(settings.get("port") or 6379),
        path=path,
        tls=tls,
        greeting=tuple(greeting),
    )
