"""Watches Redis's memory, and warns if its size or eviction policy does not suit the fleet."""

import asyncio
import logging

from pando_fleet.redis.client import FleetError, FleetUnavailable, RedisClient
from pando_fleet.redis.layout.constants import CHUNK_BYTES, TREES_PERCENT, UNKNOWN_CAPACITY_CHUNKS
from pando_fleet.redis.memory import CHUNK_BYTES_MOST, Memory, read_memory
from pando_router.fleet_view.snapshot import Fleet
from pando_router.fleet_view.view import FleetView

LOOK_S = 5.0
MB = 1_000_000
TREES_SHARE = TREES_PERCENT / 100

logger = logging.getLogger("pando.router")


class RedisMemory:
    """`advice` says by subject what is wrong and what to do; each new subject is logged."""

    def __init__(self, redis: RedisClient, view: FleetView) -> None:
        self._redis = redis
        self._view = view
        self.used_bytes = 0
        self.max_bytes = 0  # 0: no limit is known
        self.advice: dict[str, str] = {}

    @property
    def tree_bytes(self) -> int:
        """The trees' size once they hold all that the replicas' KV pools can hold."""
        return tree_bytes(self._view.fleet)

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        try:
            servers = await read_memory(self._redis)
        except FleetUnavailable:
            return  # the fleet view reports it
        except FleetError as error:
            advice = {"unknown": f"only KV pools limit the trees: permit INFO in Redis ({error})"}
        else:
            self.used_bytes = sum(server.used_bytes for server in servers)
            self.max_bytes = sum(server.max_bytes for server in servers)
            advice = advise(servers, self.tree_bytes)
        for about, text in advice.items():
            if about not in self.advice:
                logger.warning("redis's memory does not suit", extra={"advice": text})
        self.advice = advice


def tree_bytes(fleet: Fleet) -> int:
    chunks = 0.0
    for members in fleet.pools.values():
        for beat in (member.beat for member in members):
            held = beat.capacity_tokens * beat.bytes_per_token / CHUNK_BYTES
            chunks += held or UNKNOWN_CAPACITY_CHUNKS
    return int(chunks) * CHUNK_BYTES_MOST


def advise(servers: list[Memory], needed_bytes: int) -> dict[str, str]:
    """What to change, by subject; the trees need `needed_bytes`."""
    bounded = [server for server in servers if server.max_bytes]
    advice = {}
    if unfit := {s.policy for s in bounded if s.policy.startswith("allkeys")}:
        advice["policy"] = (
            f"maxmemory-policy {', '.join(sorted(unfit))} may evict the keys of replicas:"
            " set volatile-lru or noeviction"
        )
    room = TREES_SHARE * sum(server.max_bytes for server in bounded)
    if len(bounded) == len(servers) and needed_bytes > room:
        advice["size"] = (
            f"maxmemory leaves {room / MB:.0f} MB to the trees, but {needed_bytes / MB:.0f} MB"
            " would hold all that the replicas' KV caches can: the coldest prefixes are forgotten."
            f" Set maxmemory to {needed_bytes / TREES_SHARE / MB:.0f} MB"
        )
    return advice
