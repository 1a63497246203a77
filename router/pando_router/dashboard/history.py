"""The last ten minutes as one point per second, from the differences between counters. Pure."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from pando_router.dashboard.ring import Ring

INTERVAL_S = 1.0
POINTS = 600
WINDOW = 10
"""The interval of rates, shares and quantiles; with little traffic, single seconds would jump."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The counts at one moment. Only the first and the last two fields may decrease."""

    at: float  # Unix time, seconds
    answered: float  # requests with a status below 400
    refused: float  # with one of the client's mistakes, 400 to 498
    failed: float  # with 500 or above
    prompt_tokens: float
    predicted_tokens: float
    delivered_tokens: float
    cuts: float  # paths that the shared tree lost because a replica keeps nothing
    first_tokens: tuple[float, ...]  # cumulative, by the upper bounds of the histogram's buckets
    gap_s: float  # time between two tokens of a request, summed
    gaps: float
    tokens_in: float  # prompt tokens of the whole fleet, cached ones included
    tokens_out: float  # tokens that the whole fleet generated
    in_flight: int
    queued: int


@dataclass(frozen=True, slots=True)
class Point:
    """A field is None if there was nothing to measure."""

    at: float
    answered_per_s: float
    refused_per_s: float
    failed_per_s: float
    in_flight: int
    queued: int
    predicted: float | None  # share of prompt tokens expected to be cached
    delivered: float | None  # share that was cached
    cuts_per_s: float
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    inter_token_s: float | None  # mean
    tokens_in_per_s: float
    tokens_out_per_s: float


def quantile(bounds: Sequence[float], cumulative: Sequence[float], q: float) -> float | None:
    """Like PromQL's `histogram_quantile`: linear within a bucket; at most the last finite bound.

    `cumulative[i]` counts values of at most `bounds[i]`; the last bound is infinite.
    """
    total = cumulative[-1] if cumulative else 0
    if total <= 0:
        return None
    wanted = q * total
    below, lower = 0.0, 0.0
    for bound, count in zip(bounds, cumulative, strict=True):
        if count >= wanted and count > below:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (wanted - below) / (count - below)
        below, lower = count, bound
    return lower


def difference(before: Totals, now: Totals, bounds: Sequence[float]) -> Point:
    elapsed_s = max(now.at - before.at, 1e-9)
    prompt_tokens = now.prompt_tokens - before.prompt_tokens
    gaps = now.gaps - before.gaps
    earlier = before.first_tokens or (0.0,) * len(now.first_tokens)
    counts = [b - a for a, b in zip(earlier, now.first_tokens, strict=True)]
    return Point(
        at=now.at,
        answered_per_s=(now.answered - before.answered) / elapsed_s,
        refused_per_s=(now.refused - before.refused) / elapsed_s,
        failed_per_s=(now.failed - before.failed) / elapsed_s,
        in_flight=now.in_flight,
        queued=now.queued,
        predicted=_share(now.predicted_tokens - before.predicted_tokens, prompt_tokens),
        delivered=_share(now.delivered_tokens - before.delivered_tokens, prompt_tokens),
        cuts_per_s=(now.cuts - before.cuts) / elapsed_s,
        ttft_p50_s=quantile(bounds, counts, 0.5),
        ttft_p95_s=quantile(bounds, counts, 0.95),
        inter_token_s=_share(now.gap_s - before.gap_s, gaps),
        tokens_in_per_s=(now.tokens_in - before.tokens_in) / elapsed_s,
        tokens_out_per_s=(now.tokens_out - before.tokens_out) / elapsed_s,
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


class History:
    """Points are numbered from 1; the last POINTS are kept."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` are those of the histogram's buckets; the last one is infinite."""
        self._bounds = bounds
        self._totals: deque[Totals] = deque(maxlen=WINDOW + 1)
        self._points: Ring[Point] = Ring(POINTS)

    @property
    def last(self) -> int:
        """The newest point's number."""
        return self._points.last

    def add(self, totals: Totals) -> None:
        self._totals.append(totals)
        if len(self._totals) > 1:
            self._points.add(difference(self._totals[0], totals, self._bounds))

    def after(self, number: int) -> dict[str, list[Any]]:
        """The points with higher numbers, as columns by field; all if `number` does not exist."""
        points = self._points.after(number)
        return {field.name: [getattr(p, field.name) for p in points] for field in fields(Point)}
