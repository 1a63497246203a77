"""Explains in words why a replica was chosen, and why a prompt was or was not cached there."""

from collections.abc import Sequence
from enum import StrEnum

from pando_fleet.images.in_prefix import PrefixImage
from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_fleet.redis.layout.rows import Candidate, Crowded
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
    """Each image, video and sound of a prompt in words, such as "image, 576 tokens (640 x 480
    pixels)"."""
    return [f"{_kind(image)}, {image.tokens or 'unknown'} tokens{_seen(image)}" for image in images]


def _kind(image: PrefixImage) -> str:
    if image.seconds is not None:
        return "sound"
    return "video" if image.film else "image"


def _seen(image: PrefixImage) -> str:
    if image.seconds is not None:
        return f" ({image.seconds:.1f} s)"
    if image.film is not None:
        width, height = image.film.size
        return f" ({width} x {height} pixels, {image.film.seconds:.1f} s)"
    return f" ({image.size.width} x {image.size.height} pixels)" if image.size else ""


def choice(candidates: Sequence[Candidate], prompt_tokens: int | None = None) -> str:
    """Why the first of `candidates`, the cheapest, is chosen."""
    if not candidates:
        return "no candidate is fresh and ready by Redis's clock"
    best = candidates[0]
    if best.full:
        return "all candidates are full: the request would wait in the queue"
    words = terms(best, prompt_tokens)
    if len(candidates) > 1 and not candidates[1].full:
        words += f"; {candidates[1].replica} would take {seconds(candidates[1].cost_s)}"
    return words


def waits_for_memory(crowded: Crowded) -> str:
    first = "1 session resumes" if crowded.active == 1 else f"{crowded.active:,} sessions resume"
    session = "this one's conversation was evicted" if crowded.is_back else "this one is new"
    if crowded.is_behind:
        session += ", behind one that waits whose conversation was evicted"
    return (
        f"waits: {first} first, working set {crowded.working_set_tokens:,} of"
        f" {crowded.room_tokens:,} tokens, and {session}"
    )


def terms(candidate: Candidate, prompt_tokens: int | None = None) -> str:
    """A candidate and the delay that a request causes there, such as "worker-0: 112 of 136 tokens
    cached, nobody waits: 15 ms". Terms that add no delay are left out."""
    c = candidate
    of = "" if prompt_tokens is None else f" of {prompt_tokens}"
    cached = c.matched_tokens if prompt_tokens is None else min(c.matched_tokens, prompt_tokens)
    parts = [f"{cached}{of} tokens cached", _waits(c)]
    if _counts(c.kv_wait_s):
        pinned = f"{c.pinned_tokens} of {c.capacity_tokens} tokens pinned"
        parts.append(f"{seconds(c.kv_wait_s)} until KV memory is free ({pinned})")
    if c.adapter_wait_s:
        parts.append(f"{seconds(c.adapter_wait_s)} until a slot for its adapter is free")
    if c.adapter_load_s:
        parts.append(f"{seconds(c.adapter_load_s)} to load its adapter")
    if c.adapter_evict_s:
        parts.append(f"{seconds(c.adapter_evict_s)} if the adapter that gives way is needed again")
    if _counts(c.evict_s):
        parts.append(f"{seconds(c.evict_s)} if what it evicts is needed again")
    if _counts(c.pool_s):
        parts.append(f"{seconds(c.pool_s)} for those that wait in the pool")
    return f"{c.replica}: {', '.join(parts)}: {seconds(c.cost_s)}"


def _waits(c: Candidate) -> str:
    if c.queue < 0.5 and not _counts(c.wait_s):
        return "nobody waits"
    number = max(1, round(c.queue))
    return f"{seconds(c.wait_s)} behind {number} that {'waits' if number == 1 else 'wait'}"


def _counts(delay_s: float) -> bool:
    """Whether a delay is worth a word; sums of differences leave some that are not."""
    return delay_s >= 0.0001


def seconds(value: float) -> str:
    """Three digits, in ms below a second."""
    return f"{1000 * value:.3g} ms" if value < 0.9995 else f"{float(f'{value:.3g}'):g} s"


def past_choice(past: Past) -> str:
    """Why the replica of a past try was chosen."""
    placement, report = past.placement, past.tried.report
    prompt_tokens = report.prompt_tokens if report else None
    if placement is None:
        return f"chosen without Redis, which was away or knew no ready replica: {past.replica}"
    if past.policy != "cache_aware" and placement.only:
        return f"policy {past.policy} chose {terms(placement.chosen, prompt_tokens)}"
    if placement.candidates:
        return choice(placement.candidates, prompt_tokens)
    return terms(placement.chosen, prompt_tokens)


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
            f" {delivered}: it had evicted the rest, and computed it again"
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
