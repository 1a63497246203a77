"""What Redis has of leases and trees, and whether it is consistent in itself."""

from typing import Any

import pytest

from pando_fleet.placement.prefix import chunk_keys
from pando_fleet.redis.client import RedisClient
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.constants import CHUNK_BYTES, KEY_BYTES
from pando_fleet.redis.layout.rows import LOAD, PART, Part
from tests.fleet.world import POOL

KEYS = PoolKeys(POOL)
LEASES, PARTS, LOADS = KEYS.leases
CAPACITY_CHUNKS = 10


def paths() -> tuple[list[bytes], dict[bytes, bytes]]:
    """Prompts that share beginnings, and each of their chunks' parents."""
    found, parents = [], {}
    for number in range(1, 2**5):
        text = b"".join(bit.encode() * CHUNK_BYTES for bit in f"{number:b}")
        keys = chunk_keys(text, seed=0)
        found.append(keys)
        for at in range(KEY_BYTES, len(keys), KEY_BYTES):
            parents[keys[at : at + KEY_BYTES]] = keys[at - KEY_BYTES : at]
    return found, parents


PATHS, PARENTS = paths()


PATHS, PARENTS = paths()


class Book:
    def __init__(self, redis: RedisClient) -> None:
        self._redis = redis

    async def adds_up(self) -> bool:
        """Whether leases, parts and the sums have as many requests."""
        loads = (await self._hash(LOADS)).values()
        requests = sum(LOAD.unpack_row(row).requests for row in loads)
        ends, parts = await self._redis.zcard(LEASES), await self._redis.hlen(PARTS)
        return bool(requests == ends == parts)

    async def parts(self) -> dict[str, Part]:
        """The part of each lease. Raises AssertionError where the sums are not those of them."""
        found = {lease: PART.unpack_row(row) for lease, row in (await self._hash(PARTS)).items()}
        sums: dict[str, list[float]] = {}
        for part in found.values():
            before = sums.get(part.owner, [0.0] * 4)
            more = (part.work, part.room, part.waiting, 1.0)
            sums[part.owner] = [a + b for a, b in zip(before, more, strict=True)]
        loads = {owner: LOAD.unpack_row(row) for owner, row in (await self._hash(LOADS)).items()}
        assert loads.keys() == sums.keys()
        for owner, load in loads.items():
            assert list(load) == pytest.approx(sums[owner], abs=1e-6)
        leases: Any = await self._redis.zrange(LEASES, 0, -1)
        assert sorted(lease.decode() for lease in leases) == sorted(found)
        return found

    async def tree_is_whole(self, replica: str) -> None:
        """Raises AssertionError where a chunk lacks its parent, or the tree is too large."""
        held = set(await self._redis.zrange(KEYS.tree(replica, "1"), 0, -1))
        assert len(held) <= CAPACITY_CHUNKS
        assert not [key for key in held if key in PARENTS and PARENTS[key] not in held]

    async def _hash(self, key: str) -> dict[str, bytes]:
        rows: Any = await self._redis.hgetall(key)
        return {name.decode(): row for name, row in rows.items()}
