"""In words: why a replica was chosen, and why a prompt was cached there or was not."""

from collections.abc import Sequence
from enum import StrEnum

from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_fleet.redis.layout.rows import Candidate
from pando_router.exchange.past import Past


class Hit(StrEnum):
    """What became of the prompt's prefix in the cache."""

    CACHED = "cached"  # as far as anybody had it
    TOO_SHORT = "too_short"
    NEVER_SEEN = "never_seen"
    SALTED = "salted"  # never seen under this salt
    ELSEWHERE = "elsewhere"  # another replica had more of it
    LOST = "lost"  # the replica had less of it than the tree said
    UNKNOWN = "unknown"  # Redis had no part in the placement


def choice(candidates: Sequence[Candidate]) -> str:
    """Why the first of `candidates`, the cheapest, is chosen by cost."""
    if not candidates:
        return "no candidate is fresh and ready by Redis's clock"
    best = candidates[0]
    if best.full:
        return "all candidates have all their requests: the request would wait in the queue"
    words = f"{best.replica} delays least, {best.cost_s:.4f} s: {terms(best)}"
    if len(candidates) > 1 and not candidates[1].full:
        words += f"; next is {candidates[1].replica} with {candidates[1].cost_s:.4f} s"
    return words


def terms(candidate: Candidate) -> str:
    c = candidate
    return (
        f"waits {c.wait_s:.4f} s for prefills and {c.kv_wait_s:.4f} s for KV space"
        f" ({c.pinned_tokens} of {c.capacity_tokens} tokens pinned), then computes {c.work_s:.4f} s"
        f" ({c.matched_tokens} tokens cached) while {c.queue:.0f} requests wait there and"
        f" {c.coming:.1f} come, costs a busy pool {c.pool_s:.4f} s, and evicts what takes"
        f" {c.evict_s:.4f} s if it is asked for again"
    )


def past_choice(past: Past) -> str:
    """Why the replica of a past try was chosen."""
    placement = past.placement
    if placement is None:
        return f"this router alone chose {past.replica}: Redis was away or knew no ready replica"
    if past.policy != "cache_aware" and placement.only:
        return f"policy {past.policy} chose {past.replica}: {terms(placement.chosen)}"
    if placement.candidates:
        return choice(placement.candidates)
    best = placement.chosen
    return f"{best.replica} delayed least, {best.cost_s:.4f} s: {terms(best)}"


def past_hit(past: Past) -> tuple[Hit, str]:
    """What became of a past try's prefix, and in words why."""
    placement = past.placement
    if past.chunks == 0:
        return Hit.TOO_SHORT, f"the prompt has less than a chunk of {CHUNK_BYTES} bytes"
    if placement is None:
        return Hit.UNKNOWN, "what replicas hold is known only with Redis"
    chosen, most = placement.chosen, placement.chosen.most_chunks
    tokens_a_chunk = chosen.matched_tokens / chosen.matched_chunks if chosen.matched_chunks else 0.0
    report = past.tried.report
    delivered = None if report is None else report.cached_tokens
    # One chunk is within what page size and uneven bytes per token make of a full hit.
    if delivered is not None and delivered + 2 * tokens_a_chunk < chosen.matched_tokens:
        return Hit.LOST, (
            f"{chosen.replica} was believed to hold {chosen.matched_tokens} tokens but had"
            f" {delivered}: it has evicted the rest, and its path was cut there"
        )
    if most > chosen.matched_chunks and chosen.holder_full:
        return Hit.ELSEWHERE, (
            f"{chosen.holder} held {most} chunks and {chosen.replica} {chosen.matched_chunks},"
            " but the holder had all its requests"
        )
    if most > chosen.matched_chunks:
        return Hit.ELSEWHERE, (
            f"{chosen.holder} held {most} chunks and {chosen.replica} {chosen.matched_chunks}:"
            " computing the rest anew cost less than waiting there, or the policy did not look"
        )
    if most == 0 and past.is_salted:
        return Hit.SALTED, "no replica held its beginning under this salt, which parts name spaces"
    if most == 0:
        return Hit.NEVER_SEEN, "no replica held its beginning: never seen, or evicted since"
    return Hit.CACHED, f"{most} of {past.chunks} chunks, the most that any replica held"
