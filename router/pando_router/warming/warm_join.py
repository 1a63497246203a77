"""Warm join: a joining replica computes the hottest prefixes before requests are placed on it."""

from collections.abc import AsyncGenerator, Iterable

from pando_fleet.placement.tree import PrefixTree
from pando_fleet.redis.layout.constants import CHUNK_BYTES, UNKNOWN_CAPACITY_CHUNKS
from pando_fleet.registry.replica import Heartbeat
from pando_router.warming.plan import plan
from pando_router.warming.prefiller import MAX_FAILURES, Prefill, PrefillError
from pando_router.warming.prefixes import HotPrefix

LEAST_REQUESTS = 1.5  # recent; a prefix requested once returns to the replica that holds it


async def warm_join(
    hottest: Iterable[HotPrefix],
    beat: Heartbeat,
    budget_tokens: int,
    prefill: Prefill,
    tree: PrefixTree,
) -> AsyncGenerator[int, None]:
    """Yields the tokens that each prefill computed. Raises PrefillError, FleetError."""
    names = (beat.model, *beat.adapters)
    served = (hot for hot in hottest if hot.source.name in names)
    capacity = UNKNOWN_CAPACITY_CHUNKS
    if beat.capacity_tokens:
        capacity = int(beat.capacity_tokens * beat.bytes_per_token / CHUNK_BYTES)
        budget_tokens = min(budget_tokens, beat.capacity_tokens)  # more would evict the hottest
    failures = 0
    for hot in plan(served, budget_tokens, beat.bytes_per_token):
        try:
            tokens = await prefill(beat.url, hot, beat.bytes_per_token)
        except PrefillError:
            failures += 1
            if failures == MAX_FAILURES:
                raise
            continue
        await tree.touch(beat.replica, beat.incarnation, hot.keys, capacity)
        yield tokens
