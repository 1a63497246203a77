"""What a recording measured: the routers' own times, and the fleet's size as they saw it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pando_router.recording.form import FleetState, Outcome, Record
from pando_sim.proof.measures import SKIPPED_SHARE, Measures, quantile, ratio
from pando_sim.traces.errors import TraceError
from pando_sim.traces.formats.recording import entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A recorded period, of the pools that its requests went to."""

    measures: Measures
    policy: str | None  # the placement policy; the most frequent one. None: it is not recorded
    replicas: int | None  # at the beginning


def recorded(paths: Sequence[Path], model: str | None = None) -> Period:
    """A recorded period, of one model (or of an adapter) if it is given.

    Raises TraceError if a file cannot be read, is no recording, or has no request.
    """
    records: list[Record] = []
    states: list[FleetState] = []
    for path in paths:
        for _, entry in entries(path):
            if isinstance(entry, FleetState):
                states.append(entry)
            elif model is None or model in (entry.model, entry.base):
                entry.keys = b""  # most of a record, and not needed here
                records.append(entry)
    if not records:
        raise TraceError(paths[0], None, "has no request" + (f" for {model!r}" if model else ""))
    pools = {record.pool for record in records if record.pool}
    states.sort(key=lambda state: state.fleet_at)
    policies = Counter(
        state.pools[pool].policy for state in states for pool in pools if pool in state.pools
    )
    return Period(
        measures=_measures(records, states, pools),
        policy=policies.most_common(1)[0][0] if policies else None,
        replicas=_replicas(states[0], pools) if states else None,
    )


def _measures(records: Sequence[Record], states: Sequence[FleetState], pools: set[str]) -> Measures:
    begin = min(record.at for record in records)
    end = max(record.at for record in records)
    skip_s = SKIPPED_SHARE * (end - begin)
    compared = [record for record in records if record.at >= begin + skip_s]
    answered = [record for record in compared if record.outcome is Outcome.FINISHED]
    reported = [record for record in answered if record.cached_tokens is not None]
    streamed = [record for record in answered if record.stream and record.first_s is not None]
    return Measures(
        requests=len(compared),
        span_s=end - begin,
        skip_s=skip_s,
        replicas=_mean_replicas(states, pools, begin + skip_s, end),
        hit_rate=ratio(
            sum(record.cached_tokens or 0 for record in reported),
            sum(record.prompt_tokens for record in reported),
        ),
        refused=ratio(sum(record.outcome is Outcome.REFUSED for record in compared), len(compared)),
        ttft_p50=quantile([_first_s(record) for record in streamed], 0.5),
        ttft_p99=quantile([_first_s(record) for record in streamed], 0.99),
        gap_p50=quantile(_gaps(streamed), 0.5),
        gap_p99=quantile(_gaps(streamed), 0.99),
    )


def _first_s(record: Record) -> float:
    return record.first_s or 0.0


def _gaps(streamed: Sequence[Record]) -> list[float]:
    return [
        (record.total_s - _first_s(record)) / (record.output_tokens - 1)
        for record in streamed
        if record.output_tokens > 1
    ]


def _mean_replicas(
    states: Sequence[FleetState], pools: set[str], begin: float, end: float
) -> float | None:
    counts = [_replicas(state, pools) for state in states if begin <= state.fleet_at <= end]
    return sum(counts) / len(counts) if counts else None


def _replicas(state: FleetState, pools: set[str]) -> int:
    return sum(state.pools[pool].replicas for pool in pools if pool in state.pools)
