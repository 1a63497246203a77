"""In which order waiting requests are considered for admission."""

from collections.abc import Sequence

from pando_worker.memory.radix_cache import RadixCache
from pando_worker.scheduler.req import Req

# Matching every waiting request costs more than order gains once the queue is long.
LPM_MAX_WAITING = 128


def order(waiting: Sequence[Req], policy: str, cache: RadixCache) -> list[Req]:
    """`lpm`: longest cached prefix first, so a prefix is used before it is evicted; ties, and
    `fcfs`, by position in the queue: arrival, with retracted requests in front."""
    if policy == "fcfs" or not cache.enabled or len(waiting) > LPM_MAX_WAITING:
        return list(waiting)
    return sorted(waiting, key=lambda req: -cache.prefix_len(req.tokens(req.num_tokens - 1)))
