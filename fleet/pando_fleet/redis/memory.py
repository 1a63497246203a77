"""What Redis says of its memory, for who has to warn of it.

Trees are bounded where heartbeats are written, by `lua/memory_ops.lua`; nothing here is needed for
that.
"""

from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio.cluster import RedisCluster

from pando_fleet.redis.client import RedisClient, fleet_errors

CHUNK_BYTES_MOST = 125
"""What a chunk of a tree takes in Redis at most, measured by bench/tree_memory.py."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Of one server that holds keys; a cluster has several."""

    used_bytes: int
    max_bytes: int  # 0: no bound, or none that it tells
    policy: str  # maxmemory-policy


async def read_memory(redis: RedisClient) -> list[Memory]:
    """Of each master. Raises FleetUnavailable, and FleetError where the user may not ask INFO."""
    with fleet_errors():
        if isinstance(redis, RedisCluster):
            await redis.initialize()
            masters = redis.get_primaries()
            return [_memory(await redis.info("memory", target_nodes=each)) for each in masters]
        return [_memory(await redis.info("memory"))]


def _memory(info: Any) -> Memory:
    told = cast(dict[str, Any], info)
    return Memory(
        used_bytes=int(told.get("used_memory", 0)),
        max_bytes=int(told.get("maxmemory", 0)),
        policy=str(told.get("maxmemory_policy", "")),
    )
