"""Computes a report from records. The definitions are in docs/benchmarking.md."""

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from bench.fleet.serving.client import Record


class Distribution(msgspec.Struct, frozen=True):
    """The distribution of a latency, in seconds."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float
    count: int


class Slo(msgspec.Struct, frozen=True):
    """The limits of a good request, in seconds; None means no limit."""

    ttft: float | None = None
    tpot: float | None = None
    end_to_end: float | None = None

    def kept_by(self, record: Record) -> bool:
        return (
            record.error is None
            and _within(record.ttft, self.ttft)
            and _within(record.tpot, self.tpot)
            and _within(record.end_to_end, self.end_to_end)
        )


class Report(msgspec.Struct, frozen=True):
    requests: int
    succeeded: int
    errors: dict[str, int]  # by kind
    seconds: float
    prompt_tokens: int
    output_tokens: int
    cached_share: float | None  # of the prompt tokens; None: the endpoint does not report it
    requests_per_s: float
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    goodput_per_s: float | None  # None: no SLO was given
    good_share: float | None  # of all requests, including failed ones
    ttft: Distribution | None  # None: no request has one
    tpot: Distribution | None
    itl: Distribution | None
    end_to_end: Distribution | None
    lateness: Distribution | None  # of the load generator: sent after it was due


def summarize(records: Sequence[Record], slo: Slo | None = None) -> Report:
    """The report on all requests of a run."""
    whole = [record for record in records if record.error is None]
    seconds = max(r.ended for r in records) - min(r.sent for r in records) if records else 0.0
    prompt, output = sum(r.prompt_tokens for r in whole), sum(r.output_tokens for r in whole)
    good = sum(map(slo.kept_by, records)) if slo else None
    per_second = 1 / seconds if seconds else 0.0
    return Report(
        requests=len(records),
        succeeded=len(whole),
        errors=dict(Counter(r.error for r in records if r.error is not None).most_common()),
        seconds=seconds,
        prompt_tokens=prompt,
        output_tokens=output,
        cached_share=_cached_share(whole),
        requests_per_s=len(whole) * per_second,
        prompt_tokens_per_s=prompt * per_second,
        output_tokens_per_s=output * per_second,
        goodput_per_s=None if good is None else good * per_second,
        good_share=None if good is None or not records else good / len(records),
        ttft=distribution([r.ttft for r in whole]),
        tpot=distribution([r.tpot for r in whole if r.tpot is not None]),
        itl=distribution(
            [b - a for r in whole for a, b in zip(r.chunks, r.chunks[1:], strict=False)]
        ),
        end_to_end=distribution([r.end_to_end for r in whole]),
        lateness=distribution([max(0.0, r.sent - r.due) for r in records]),
    )


def distribution(values: Sequence[float]) -> Distribution | None:
    if not values:
        return None
    ordered = sorted(values)
    return Distribution(
        mean=math.fsum(ordered) / len(ordered),
        p50=percentile(ordered, 0.50),
        p90=percentile(ordered, 0.90),
        p99=percentile(ordered, 0.99),
        max=ordered[-1],
        count=len(ordered),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _cached_share(records: Sequence[Record]) -> float | None:
    reporting = [r for r in records if r.cached_tokens is not None]
    prompt = sum(r.prompt_tokens for r in reporting)
    return sum(r.cached_tokens or 0 for r in reporting) / prompt if prompt else None


def _within(value: float | None, limit: float | None) -> bool:
    return limit is None or value is None or value <= limit
