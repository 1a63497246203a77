"""What is in a merged recording, and what is not, in words."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from pando_sim.report.measures import span
from pando_sim.traces.merging import Merged

MOST_NAMED = 5  # models, pools, gaps


def summary(merged: Merged) -> Iterator[str]:
    """Its lines."""
    assert merged.begin is not None and merged.end is not None
    yield f"{_time(merged.begin)} to {_time(merged.end)}, {span(merged.end - merged.begin)}"
    outcomes = ", ".join(f"{count:,} {name}" for name, count in merged.outcomes.most_common())
    yield f"requests: {merged.requests:,}" + (f" ({outcomes})" if outcomes else "")
    hits = ""
    if merged.reported_tokens:
        hits = f", {merged.cached_tokens / merged.reported_tokens:.1%} of them cached"
    yield f"tokens: {merged.prompt_tokens:,} of prompts{hits}; {merged.output_tokens:,} of answers"
    about = "" if merged.sessions.is_exact else "about "
    yield f"streams: {merged.streams:,}; sessions: {about}{merged.sessions.count:,}"
    yield f"models: {_named(merged.models)}; pools: {_named(merged.pools)}"
    yield f"routers: {len(merged.routers)}; lines about the fleet: {merged.states:,}"
    yield from _lacks(merged)


def _lacks(merged: Merged) -> Iterator[str]:
    if merged.gaps:
        lost_s = sum(end - begin for begin, end in merged.gaps)
        shown = ", ".join(
            f"{_time(begin)} for {span(end - begin)}" for begin, end in merged.gaps[:MOST_NAMED]
        )
        more = f" and {len(merged.gaps) - MOST_NAMED} more" if len(merged.gaps) > MOST_NAMED else ""
        yield f"gaps: {span(lost_s)} in which no router recorded: {shown}{more}"
    if merged.unrecorded:
        yield f"lost: {merged.unrecorded:,} requests that a router could not write"
    if len(merged.secrets) > 1:
        yield (
            f"keys: of {len(merged.secrets)} secrets, so prompts of different ones share nothing"
            " in the trace"
        )
    if not merged.states:
        yield "fleet: not in it, so sizes of pools cannot be compared with a replay"
    if not merged.reported_tokens and merged.requests:
        yield "hit rate: not in it, as no replica reported cached tokens"
    yield (
        "not in it: text, names of users and tenants, and requests that were refused before their"
        " prompt was known"
    )


def _named(counts: Counter[str]) -> str:
    if not counts:
        return "none"
    shown = ", ".join(f"{name} ({count:,})" for name, count in counts.most_common(MOST_NAMED))
    return shown + (f" and {len(counts) - MOST_NAMED} more" if len(counts) > MOST_NAMED else "")


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
