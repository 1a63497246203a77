"""The prefix tree: what each replica is expected to hold in its KV cache.

There is one sorted set per replica and incarnation. It has the chunk keys of its paths
(`prefix.chunk_keys`), scored so that the oldest entry is always a leaf; see
`lua/placement/tree_ops.lua`. Placement touches and matches inside its own script with the same
functions; this class is for callers that change a single replica's tree.
"""

from pando_fleet.redis.client import RedisClient, fleet_errors
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout import calls
from pando_fleet.redis.scripts import Clock, Script, time_arg


class PrefixTree:
    """Trees of one pool's replicas. Every method raises FleetUnavailable if Redis is away."""

    def __init__(self, redis: RedisClient, pool: str, clock: Clock | None = None) -> None:
        self._redis = redis
        self._keys = PoolKeys(pool)
        self._clock = clock
        self._touch = Script(redis, calls.TouchTree)
        self._match = Script(redis, calls.MatchTree)
        self._cut = Script(redis, calls.CutTree)

    async def touch(
        self, replica: str, incarnation: str, keys: bytes, capacity_chunks: int
    ) -> None:
        """Adds the path, or marks it as used now; drops the oldest leaves above capacity."""
        tree, now = self._keys.tree(replica, incarnation), time_arg(self._clock)
        await self._touch(calls.TouchTree(tree=tree, now=now, path=keys, capacity=capacity_chunks))

    async def match(self, replica: str, incarnation: str, keys: bytes) -> int:
        """Chunks of the path, from its root, that the replica holds."""
        tree = self._keys.tree(replica, incarnation)
        return int(await self._match(calls.MatchTree(tree=tree, path=keys)))

    async def cut(self, replica: str, incarnation: str, keys: bytes, depth: int) -> None:
        """Removes everything after the first `depth` chunks of the path.

        Paths that branch off after the cut stay until they age out: a later match may overestimate,
        and is then corrected by its own cut.
        """
        tree = self._keys.tree(replica, incarnation)
        await self._cut(calls.CutTree(tree=tree, path=keys, depth=depth))

    async def size(self, replica: str, incarnation: str) -> int:
        """Chunks that the replica is expected to hold."""
        with fleet_errors():
            return int(await self._redis.zcard(self._keys.tree(replica, incarnation)))
