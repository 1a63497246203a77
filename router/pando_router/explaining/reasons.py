"""Explains in words why a replica was chosen, and why a prompt was or was not cached there."""

from collections.abc import Sequence
from enum import StrEnum

from pando_fleet.images.in_prefix import PrefixImage
from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_fleet.redis.layout.rows import Candidate
from pando_router.exchange.past import Past


class Hit(StrEnum):
    """Whether the prompt's prefix was cached, or why not."""

    CACHED = "cached"  # as much as any replica had
    TOO_SHORT = "too_short"
    NEVER_SEEN = "never_seen"
    SALTED = "salted"  # never seen under this salt
    ELSEWHERE = "elsewhere"  # another replica had more of it
    LOST = "lost"  # the replica had less of it than the tree predicted
    UNKNOWN = "unknown"  # placed without Redis


def images(images: Sequence[PrefixImage]) -> list[str]:
    """Each image and video of a prompt in words, such as "image, 576 tokens (640 x 480 pixels)"."""
    return [
        f"{'video' if image.film else 'image'}, {image.tokens or 'unknown'} tokens{_seen(image)}"
        for image in images
    ]


def _seen(image: PrefixImage) -> str:
    if image.film is not None:
        width, height = image.film.size
        return f" ({width} x {height} pixels, {image.film.seconds:.1f} s)"
    return f" ({image.size.width} x {image.size.height} pixels)" if image.size else ""


def choice(candidates: Sequence[Candidate]) -> str:
    """Why the first of `candidates`, the cheapest, is chosen."""
    if not candidates:
        return "no candidate is fresh and ready by Redis's clock"
    best = candidates[0]
    if best.full:
        return "all candidates are full: the request would wait in the queue"
    words = f"{best.replica} has the lowest cost, {best.cost_s:.4f} s: {terms(best)}"
    if len(candidates) > 1 and not candidates[1].full:
        words += f"; next is {candidates[1].replica} with {candidates[1].cost_s:.4f} s"
    return words


def terms(candidate: Candidate) -> str:
    c = candidate
    adapter = ""
    if c.adapter_load_s or c.adapter_wait_s:
        adapter = (
            f", waits {c.adapter_wait_s:.4f} s for a slot for its adapter and loads it in"
            f" {c.adapter_load_s:.4f} s, for which another gives way that costs"
            f" {c.adapter_evict_s:.4f} s if it is needed again"
        )
    return (
        f"waits {c.wait_s:.4f} s for prefills and {c.kv_wait_s:.4f} s for KV space"
        f" ({c.pinned_tokens} of {c.capacity_tokens} tokens pinned), computes {c.work_s:.4f} s"
        f" ({c.matched_tokens} tokens cached) with {c.queue:.0f} waiting there and"
        f" {c.coming:.1f} more expected, costs a busy pool {c.pool_s:.4f} s, and evicts tokens"
        f" that cost {c.evict_s:.4f} s if they are needed again{adapter}"
    )


def past_choice(past: Past) -> str:
    """Why the replica of a past try was chosen."""
    placement = past.placement
    if placement is None:
        return f"chosen without Redis, which was away or knew no ready replica: {past.replica}"
    if past.policy != "cache_aware" and placement.only:
        return f"policy {past.policy} chose {past.replica}: {terms(placement.chosen)}"
    if placement.candidates:
        return choice(placement.candidates)
    best = placement.chosen
    return f"{best.replica} had the lowest cost, {best.cost_s:.4f} s: {terms(best)}"


def past_hit(past: Past) -> tuple[Hit, str]:
    """Whether a past try's prefix was cached, and the reason in words."""
    placement = past.placement
    if past.chunks == 0:
        return Hit.TOO_SHORT, f"the prompt is shorter than a chunk of {CHUNK_BYTES} bytes"
    if placement is None:
        return Hit.UNKNOWN, "without Redis, the replicas' contents are unknown"
    chosen, most = placement.chosen, placement.chosen.most_chunks
    tokens_a_chunk = chosen.matched_tokens / chosen.matched_chunks if chosen.matched_chunks else 0.0
    report = past.tried.report
    delivered = None if report is None else report.cached_tokens
    # Page size and uneven bytes per token can make a full hit look one chunk short.
    if delivered is not None and delivered + 2 * tokens_a_chunk < chosen.matched_tokens:
        return Hit.LOST, (
            f"{chosen.replica} was expected to hold {chosen.matched_tokens} tokens but had"
            f" {delivered}: it has evicted the rest, so its path was cut there"
        )
    if most > chosen.matched_chunks and chosen.holder_full:
        return Hit.ELSEWHERE, (
            f"{chosen.holder} held {most} chunks and {chosen.replica} {chosen.matched_chunks},"
            " but the holder was full"
        )
    if most > chosen.matched_chunks:
        return Hit.ELSEWHERE, (
            f"{chosen.holder} held {most} chunks and {chosen.replica} {chosen.matched_chunks}:"
            " computing the rest cost less than waiting there, or the policy does not consider it"
        )
    if most == 0 and past.is_salted:
        return Hit.SALTED, "no replica held its beginning under this salt (a namespace)"
    if most == 0:
        return Hit.NEVER_SEEN, "no replica held its beginning: never seen, or evicted since"
    return Hit.CACHED, f"{most} of {past.chunks} chunks, the most that any replica held"
