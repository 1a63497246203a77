"""The statistics of one run."""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from pando_sim.records import Sample, SessionCounts
from pando_sim.report.columns import Columns, Floats


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The spread of a quantity over requests, in seconds."""

    mean: float
    p50: float
    p90: float
    p99: float
    most: float


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """A number is None if there was nothing to compute it from."""

    requests: int
    finished: int
    refused: int
    failed: int
    retried: int  # requests that were placed more than once
    duration_s: float  # virtual, from the first arrival to the last end
    wall_s: float

    prompt_tokens: int  # of requests with a first token
    output_tokens: int
    hit_rate: float | None  # cached share of the prompt tokens: delivered, not expected
    matched_rate: float | None  # the share that placement expected
    ttft: Spread | None  # arrival to first token; of requests that have one
    gap: Spread | None  # a request's mean time between tokens; for those with several
    longest_gap: Spread | None  # its longest one
    queue_wait: Spread | None  # arrival to the last placement
    goodput: (
        float | None
    )  # share of all requests that finished in time, at first and between tokens
    requests_per_s: float
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    load_spread: float | None  # tokens that the busiest replica computed, divided by an even share
    mean_replicas: float | None  # that cost money
    replica_hours: float
    gpu_hours: float
    adapter_loads: int = 0  # of LoRA adapters into slots
    sessions: "SessionStatistics | None" = None  # of a run that keeps sessions running


class SessionStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of the time for which sessions were kept running; a refused call that was sent again counts
    as one, from the first time."""

    at_once: int
    hours: float
    calls_per_hour: float  # that were answered
    sessions_per_hour: float  # that ended
    cut: int  # sessions that ended at a call that no replica accepted
    first_ttft: Spread | None  # of the first calls of conversations, and of sub-agents
    later_ttft: Spread | None  # of all others
    repeated_share: float | None  # of the prompt tokens: the hit rate of caches without limit
    recomputed_share: float | None  # of the computed prompt tokens: computed before


def spread(values: Floats) -> Spread | None:
    """The spread of the values that are numbers."""
    values = values[~np.isnan(values)]
    if not len(values):
        return None
    p50, p90, p99 = np.quantile(values, (0.5, 0.9, 0.99))
    return Spread(
        mean=float(values.mean()),
        p50=float(p50),
        p90=float(p90),
        p99=float(p99),
        most=float(values.max()),
    )


def statistics(
    requests: Columns,
    samples: Sequence[Sample],
    *,
    retried: int,
    slow_ttft_s: float,
    slow_gap_s: float,
    gpus_per_replica: int,
    wall_s: float,
    sessions: SessionCounts | None = None,
) -> Statistics:
    total = len(requests.arrival)
    has_first = ~np.isnan(requests.first_token)
    prompt = int(requests.prompt[has_first].sum())
    output = int(requests.output[has_first].sum())
    start = float(requests.arrival.min()) if total else 0.0
    duration = float(np.nanmax(requests.end)) - start if total else 0.0
    finished, refused = int(requests.finished.sum()), int(requests.refused.sum())
    replica_seconds = samples[-1].replica_seconds if samples else 0.0
    good = (
        requests.finished
        & (requests.ttft <= slow_ttft_s)
        & (np.nan_to_num(requests.gap) <= slow_gap_s)
    )

    def a_second(count: float) -> float:
        return count / duration if duration else 0.0

    return Statistics(
        requests=total,
        finished=finished,
        refused=refused,
        failed=total - finished - refused,
        retried=retried,
        duration_s=duration,
        wall_s=wall_s,
        prompt_tokens=prompt,
        output_tokens=output,
        hit_rate=int(requests.cached[has_first].sum()) / prompt if prompt else None,
        matched_rate=int(requests.matched[has_first].sum()) / prompt if prompt else None,
        ttft=spread(requests.ttft),
        gap=spread(requests.gap),
        longest_gap=spread(requests.longest_gap),
        queue_wait=spread(requests.placed - requests.arrival),
        goodput=int(good.sum()) / total if total else None,
        requests_per_s=a_second(finished),
        prompt_tokens_per_s=a_second(prompt),
        output_tokens_per_s=a_second(output),
        load_spread=load_spread(requests, samples),
        mean_replicas=_mean(samples, lambda sample: sample.replicas),
        replica_hours=replica_seconds / 3600,
        gpu_hours=replica_seconds / 3600 * gpus_per_replica,
        adapter_loads=samples[-1].adapter_loads if samples else 0,
        sessions=None if sessions is None else _of_sessions(requests, sessions),
    )


def _of_sessions(requests: Columns, counts: SessionCounts) -> SessionStatistics:
    hours = counts.until_s / 3600
    has_first = ~np.isnan(requests.first_token)
    prompt = int(requests.prompt[has_first].sum())
    repeated = int(requests.repeated[has_first].sum())
    again = np.maximum(0, requests.repeated - requests.cached)[has_first]
    computed = int(requests.computed.sum())
    return SessionStatistics(
        at_once=counts.at_once,
        hours=hours,
        calls_per_hour=int((requests.finished & (requests.end <= counts.until_s)).sum()) / hours,
        sessions_per_hour=counts.ended / hours,
        cut=counts.cut,
        first_ttft=spread(requests.ttft[requests.turn == 0]),
        later_ttft=spread(requests.ttft[requests.turn > 0]),
        repeated_share=repeated / prompt if prompt else None,
        recomputed_share=int(again.sum()) / computed if computed else None,
    )


def load_spread(requests: Columns, samples: Sequence[Sample]) -> float | None:
    """The tokens that the busiest replica computed, divided by those that a replica that was always
    ready would have computed with an even spread: 1 is even, the number of replicas is the
    worst."""
    tokens = np.bincount(
        requests.replica[requests.replica >= 0],
        weights=requests.computed[requests.replica >= 0],
        minlength=len(requests.replicas),
    )
    ready = _mean(samples, lambda sample: sample.ready)
    if not tokens.sum() or not ready:
        return None
    return float(tokens.max() / (tokens.sum() / ready))


def _mean(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float | None:
    return sum(map(value, samples)) / len(samples) if samples else None
