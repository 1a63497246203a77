"""One run over time and as distributions, in arrays of a length independent of the trace."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from pando_sim.records import Sample
from pando_sim.report.columns import Columns, Floats

MOST_POINTS = 120  # per line
REQUESTS_A_POINT = 40  # on average at least, so that percentiles cover several
REQUESTS_A_REPLICA = 16  # per point of the load spread; with fewer, chance looks like imbalance

Line = list[float | None]  # None: no value, which interrupts the line


class RequestSeries(msgspec.Struct, frozen=True, kw_only=True):
    """For the requests that arrived in each interval around `at_s`."""

    at_s: list[float]
    hit_rate: Line
    ttft_p50: Line
    ttft_p90: Line
    ttft_p99: Line
    gap_p50: Line
    gap_p90: Line
    gap_p99: Line


class LoadSeries(msgspec.Struct, frozen=True, kw_only=True):
    """For the requests that were placed in each interval: the computed tokens of the busiest
    replica, divided by an even share of the ready ones."""

    at_s: list[float]
    spread: Line


class PoolSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Means of the samples in each interval around `at_s`; for the queue the maximum."""

    at_s: list[float]
    replicas: list[float]
    ready: list[float]
    draining: list[float]
    queued: list[float]  # requests in routers and, without a first token, in replicas
    running: list[float]
    pinned_tokens: list[float]
    cached_tokens: list[float]
    free_tokens: list[float]
    gpu_hours: list[float]  # until then


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """A share `share[i]` of all requests, including those without an answer, has at most
    `ttft_s[i]`, and `gap_share[i]` at most `gap_s[i]`."""

    share: list[float]
    ttft_s: list[float]
    gap_share: list[float]
    gap_s: list[float]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    requests: RequestSeries
    load: LoadSeries
    pool: PoolSeries
    distribution: Distribution


def series(requests: Columns, samples: Sequence[Sample], gpus_per_replica: int) -> Series:
    return Series(
        requests=_over_arrivals(requests),
        load=_over_placements(requests, samples),
        pool=_over_samples(samples, gpus_per_replica),
        distribution=_distribution(requests),
    )


class _Intervals:
    """Equal intervals of time, and the values in each."""

    def __init__(self, times: Floats, count: int) -> None:
        first, last = (float(times.min()), float(times.max())) if len(times) else (0.0, 0.0)
        self.edges = np.linspace(first, max(last, first + 1e-9), count + 1)
        self.middles: list[float] = ((self.edges[1:] + self.edges[:-1]) / 2).round(3).tolist()
        self.count = count
        self.index = np.clip(np.searchsorted(self.edges, times, side="right") - 1, 0, count - 1)
        order = np.argsort(self.index, kind="stable")
        bounds = np.searchsorted(self.index[order], np.arange(count + 1))
        self._members = [order[a:b] for a, b in pairwise(bounds.tolist())]

    def each(self, value: Callable[[np.ndarray], float | None]) -> Line:
        """Applies `value` to the indices of each interval."""
        return [value(members) if len(members) else None for members in self._members]


def _over_arrivals(requests: Columns) -> RequestSeries:
    total = len(requests.arrival)
    intervals = _Intervals(requests.arrival, max(1, min(MOST_POINTS, total // REQUESTS_A_POINT)))
    has_first = ~np.isnan(requests.first_token)
    cached, prompt = requests.cached * has_first, requests.prompt * has_first

    def percentile(values: Floats, share: float) -> Line:
        def of(members: np.ndarray) -> float | None:
            known = values[members]
            known = known[~np.isnan(known)]
            return _short(float(np.quantile(known, share))) if len(known) else None

        return intervals.each(of)

    def hit_rate(members: np.ndarray) -> float | None:
        tokens = int(prompt[members].sum())
        return _short(int(cached[members].sum()) / tokens) if tokens else None

    return RequestSeries(
        at_s=intervals.middles,
        hit_rate=intervals.each(hit_rate),
        ttft_p50=percentile(requests.ttft, 0.5),
        ttft_p90=percentile(requests.ttft, 0.9),
        ttft_p99=percentile(requests.ttft, 0.99),
        gap_p50=percentile(requests.gap, 0.5),
        gap_p90=percentile(requests.gap, 0.9),
        gap_p99=percentile(requests.gap, 0.99),
    )


def _over_placements(requests: Columns, samples: Sequence[Sample]) -> LoadSeries:
    placed = (requests.replica >= 0) & (requests.computed > 0)
    times, replica = requests.placed[placed], requests.replica[placed]
    tokens = requests.computed[placed]
    each = max(1, len(requests.replicas)) * REQUESTS_A_REPLICA
    intervals = _Intervals(times, max(1, min(MOST_POINTS // 2, len(times) // each)))
    sampled = np.array([sample.at_s for sample in samples])
    ready = np.array([sample.ready for sample in samples])

    def spread(members: np.ndarray) -> float | None:
        middle = float(np.median(times[members]))
        near = int(np.clip(np.searchsorted(sampled, middle), 0, len(sampled) - 1))
        if not len(sampled) or not ready[near]:
            return None
        of_replica = np.bincount(replica[members], weights=tokens[members])
        return _short(float(of_replica.max() / (of_replica.sum() / ready[near])))

    return LoadSeries(at_s=intervals.middles, spread=intervals.each(spread))


def _over_samples(samples: Sequence[Sample], gpus_per_replica: int) -> PoolSeries:
    times = np.array([sample.at_s for sample in samples], np.float64)
    intervals = _Intervals(times, max(1, min(MOST_POINTS, len(samples) - 1)))

    def over(value: Callable[[Sample], float], *, longest: bool = False) -> list[float]:
        values = np.fromiter(map(value, samples), np.float64, len(samples))

        def of(members: np.ndarray) -> float | None:
            chosen = values[members]
            return _short(float(chosen.max() if longest else chosen.mean()))

        return [value for value in intervals.each(of) if value is not None]

    kept = intervals.each(lambda members: 1.0)
    return PoolSeries(
        at_s=[at for at, is_kept in zip(intervals.middles, kept, strict=True) if is_kept],
        replicas=over(lambda sample: sample.replicas),
        ready=over(lambda sample: sample.ready),
        draining=over(lambda sample: sample.draining),
        queued=over(lambda sample: sample.queued + sample.waiting, longest=True),
        running=over(lambda sample: sample.running),
        pinned_tokens=over(lambda sample: sample.pinned_tokens),
        cached_tokens=over(lambda sample: sample.cached_tokens),
        free_tokens=over(
            lambda sample: sample.capacity_tokens - sample.pinned_tokens - sample.cached_tokens
        ),
        gpu_hours=over(lambda sample: sample.replica_seconds / 3600 * gpus_per_replica),
    )


def _distribution(requests: Columns) -> Distribution:
    """Has most points in the tail, the interesting part."""
    shares = np.concatenate((np.linspace(0, 0.9, 91), np.linspace(0.902, 1, 50)))
    total = max(1, len(requests.arrival))

    def of(values: Floats, among: int) -> tuple[list[float], list[float]]:
        known = values[~np.isnan(values)]
        if not len(known):
            return [], []
        return (
            [_short(share) for share in shares * len(known) / among],
            [_short(value) for value in np.quantile(known, shares)],
        )

    share, ttft = of(requests.ttft, total)
    single = int((requests.finished & np.isnan(requests.gap)).sum())  # no gap exists
    gap_share, gap = of(requests.gap, max(1, total - single))
    return Distribution(share=share, ttft_s=ttft, gap_share=gap_share, gap_s=gap)


def _short(value: float) -> float:
    """Rounds to six digits, enough for plots and readers of the file."""
    return float(f"{value:.6g}")
