"""Reads the sizes of Redis's memory, for warnings.

This half only reads; the other half, `lua/redis/memory_ops.lua`, bounds the trees when heartbeats
are written, and needs nothing from here.
"""

from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio.cluster import RedisCluster

from pando_fleet.redis.client import RedisClient, fleet_errors

CHUNK_BYTES_MOST = 125
"""Largest size of a tree's chunk in Redis, measured by bench/router/tree_memory.py."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one server that holds keys; a cluster has several."""

    used_bytes: int
    max_bytes: int  # 0: no limit, or a hidden one
    policy: str  # maxmemory-policy


async def read_memory(redis: RedisClient) -> list[Memory]:
    """The memory of each master. Raises FleetUnavailable; FleetError if the user may not run
    INFO."""
    with fleet_errors():
        if isinstance(redis, RedisCluster):
            await redis.initialize()
            masters = redis.get_primaries()
            return [_memory(await redis.info("memory", target_nodes=each)) for each in masters]
        return [_memory(await redis.info("memory"))]


def _memory(info: Any) -> Memory:
    fields = cast(dict[str, Any], info)
    return Memory(
        used_bytes=int(fields.get("used_memory", 0)),
        max_bytes=int(fields.get("maxmemory", 0)),
        policy=str(fields.get("maxmemory_policy", "")),
    )
