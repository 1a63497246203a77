"""What a replica's cache is worth to its pool: the prefixes that would be lost with it.

The operator removes the replicas of least worth first; it chooses the pod that leaves in
`pando_operator/lifecycle/choice.py`. A chunk that another ready replica also holds costs nothing to
lose. One that no other holds costs its tokens if it is needed again, which is the less likely the
longer ago it was used: its worth halves with each half-life.

There is one script call per replica, with bounded work (`lua/placement/tree_worth.lua`): a large
tree is sampled, its newest half in full and the rest scaled up from stretches spread evenly over
the older entries.
"""

from collections.abc import Sequence

from pando_fleet.redis.client import RedisClient
from pando_fleet.redis.keys import PoolKeys
from pando_fleet.redis.layout.calls import WeighTree
from pando_fleet.redis.layout.constants import CHUNK_BYTES, FRESH_MS
from pando_fleet.redis.scripts import Clock, Script, time_arg
from pando_fleet.registry.replica import Replica, ReplicaState

HALF_LIFE_S = 600.0

MOST_MEMBERS, FEWEST_MEMBERS = 1_024, 128
"""Chunks of one large tree that one call reads."""

MOST_LOOKUPS = 4_096
"""Look-ups per call in the other trees; with many of those, fewer chunks are read."""


class Worths:
    """The worth of one pool's caches. Raises FleetUnavailable if Redis is away."""

    def __init__(
        self,
        redis: RedisClient,
        pool: str,
        clock: Clock | None = None,
        *,
        half_life_s: float = HALF_LIFE_S,
        most_members: int = MOST_MEMBERS,
    ) -> None:
        self._keys = PoolKeys(pool)
        self._clock = clock
        self._half_life_ms = round(1000 * half_life_s)
        self._most = most_members
        self._worth = Script(redis, WeighTree)

    async def read(self, replicas: Sequence[Replica]) -> dict[str, float]:
        """For each replica that takes requests, by name, the tokens that only it holds, each
        weighted by its recency. The others, such as draining ones, have no worth and protect no
        tokens."""
        ready = [each for each in replicas if _takes_requests(each)]
        trees = [self._keys.tree(each.beat.replica, each.beat.incarnation) for each in ready]
        others = max(1, len(ready) - 1)
        most = min(self._most, max(FEWEST_MEMBERS, MOST_LOOKUPS // others))
        worths = {}
        for each, tree in zip(ready, trees, strict=True):
            call = WeighTree(
                tree=tree, now=time_arg(self._clock), half_life_ms=self._half_life_ms, most=most
            )
            chunks = await self._worth(call, more_keys=[one for one in trees if one != tree])
            worths[each.beat.replica] = float(chunks) * CHUNK_BYTES / each.beat.bytes_per_token
        return worths


def _takes_requests(replica: Replica) -> bool:
    ready = replica.beat.state is ReplicaState.READY
    return ready and not replica.withheld and replica.age_ms <= FRESH_MS
