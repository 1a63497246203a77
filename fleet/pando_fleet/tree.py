"""The prefix tree: what each replica is believed to hold in its KV cache."""

from collections.abc import Callable

from pando_fleet.client import RedisClient


class PrefixTree:
    """One sorted set a replica and incarnation; paths are packed keys of `prefix.chunk_keys`."""

    def __init__(
        self, redis: RedisClient, pool: str, clock: Callable[[], int] | None = None
    ) -> None:
        raise NotImplementedError

    async def touch(
        self, replica: str, incarnation: str, keys: bytes, capacity_chunks: int
    ) -> None:
        """Adds the path, or marks it as used now; then drops the oldest leaves above capacity."""
        raise NotImplementedError

    async def match(self, replica: str, incarnation: str, keys: bytes) -> int:
        """Chunks of the path, from its root, that the replica holds."""
        raise NotImplementedError

    async def cut(self, replica: str, incarnation: str, keys: bytes, depth: int) -> None:
        """Removes what lies behind the first `depth` chunks of the path."""
        raise NotImplementedError

    async def size(self, replica: str, incarnation: str) -> int:
        """Chunks that the replica is believed to hold."""
        raise NotImplementedError
