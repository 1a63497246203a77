"""The cost model of a pool's workers, from what they measured while routers recorded.

A replica's line has the means of 20 s: of a decode step (its duration and, from the rate, its
size), and of a prompt token, with the context that it saw. Replicas differ in load, and so do the
hours, so the lines show how both depend on the batch. Coefficients are fitted to them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np

from pando_router.recording.form import Measured, PoolState
from pando_sim.cost.least_squares import Floats, fit
from pando_sim.cost.schema import CostFile, CostModelError, Quality, StepCost, WorkerFacts
from pando_sim.traces.formats.recording import fleet_states

LEAST = 10
"""Lines with decodes, and lines with prompts, that are needed to say anything."""
MOST = 20_000  # lines that are kept; of more, every second one, and so on


@dataclass(slots=True)
class Observed:
    """What the workers of a pool measured."""

    pool: str
    model: str = ""
    begin: float = 0.0  # Unix time
    end: float = 0.0
    capacities: Counter[int] = field(default_factory=Counter)
    starts_s: list[float] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    _every: int = 1
    _seen: int = 0

    def add(self, at: float, state: PoolState) -> None:
        self.model, self.begin, self.end = state.model, self.begin or at, at
        self.starts_s += [seconds for _, seconds in state.started]
        for one in state.measured:
            self.capacities[one.capacity_tokens] += 1
            self._seen += 1
            if self._seen % self._every == 0:
                self.measured.append(one)
        if len(self.measured) > MOST:
            self._every *= 2
            del self.measured[::2]


def observed_workers(path: Path) -> list[Observed]:
    """By pool, the one with most measurements first. Raises TraceError."""
    pools: dict[str, Observed] = {}
    for state in fleet_states(path):
        for name, pool in state.pools.items():
            pools.setdefault(name, Observed(name)).add(state.fleet_at, pool)
    return sorted(pools.values(), key=lambda one: -len(one.measured))


def measured_cost(seen: Observed, name: str, start_s: float | None = None) -> CostFile:
    """The cost model that is called `name`.

    Args:
        start_s: from a replica's creation until it is ready, if it is known; None: what routers saw
            of it, which begins with a worker's first heartbeat.

    Raises CostModelError if too little was measured.
    """
    if start_s is None and seen.starts_s:
        start_s = median(seen.starts_s)
    decodes = [one for one in seen.measured if one.decoded_tokens and one.decode_s and one.running]
    prompts = [one for one in seen.measured if one.prompts and one.prefill_tokens_per_s]
    for what, found in (("decodes", decodes), ("prompts", prompts)):
        if len(found) < LEAST:
            raise CostModelError(
                f"the workers of pool {seen.pool} measured {what} in {len(found)} lines of the"
                f" recording, and {LEAST} are needed: record for longer, while it serves"
            )
    (step_s, row_s, context_s), decode_errors = _decoding(decodes)
    (token_s, prefill_s), doubling, prefill_errors = _prefilling(prompts, step_s)
    off = np.concatenate([decode_errors, prefill_errors])
    (capacity, _), *_ = seen.capacities.most_common(1)
    return CostFile(
        name=name,
        model=seen.model,
        machine=f"pool {seen.pool}",
        source=(
            f"pando record: {len(seen.measured):,} measurements of its workers,"
            f" {_day(seen.begin)} to {_day(seen.end)}"
        ),
        date=_day(seen.end),
        step=StepCost(
            step_s=_rounded(step_s),
            token_s=_rounded(token_s),
            # What a decode adds to a step is measured, so its token shall not count again.
            free_tokens=float(round(max(map(_batch, decodes)))),
            prefill_step_s=_rounded(prefill_s),
            prefill_context_s=_rounded(token_s / doubling) if doubling else 0.0,
            decode_row_s=_rounded(row_s),
            decode_context_s=_rounded(context_s),
        ),
        worker=WorkerFacts(capacity_tokens=capacity),
        start_s=None if start_s is None else round(start_s, 1),
        quality=Quality(
            observations=len(off),
            median_error=round(float(np.median(off)), 4),
            largest_error=round(float(off.max()), 4),
        ),
    )


def _decoding(rows: Sequence[Measured]) -> tuple[Floats, Floats]:
    """Seconds of a step, of a request in it, and of a token that it reads; relative errors."""
    seconds = np.array([_step_s(one) for one in rows])
    batch = np.array([_batch(one) for one in rows])
    context = np.array([one.pinned_tokens / one.running for one in rows])
    features = np.column_stack([np.ones(len(rows)), batch, batch * context])
    found = fit(features, seconds)
    if not found[0]:  # no step is free: the smallest one bounds it
        found = fit(features[:, 1:], seconds, np.full(len(rows), seconds.min() / 2))
        found = np.concatenate([[seconds.min() / 2], found])
    return found, np.abs(features @ found / seconds - 1)


def _prefilling(rows: Sequence[Measured], step_s: float) -> tuple[Floats, float, Floats]:
    """Seconds of a prompt token, and of a step with prompts beyond another one; the context that
    doubles the former, or 0; relative errors."""
    known = [one.doubling_context for one in rows if one.doubling_context > 0]
    doubling = median(known) if known else 0.0
    seconds = np.array([1 / one.prefill_tokens_per_s for one in rows])
    context = np.array([one.prefill_context_per_s / one.prefill_tokens_per_s for one in rows])
    share = np.array([1 / _prompt_tokens(one) for one in rows])  # of its step
    slower = 1 + context / doubling if doubling else np.ones(len(rows))
    features = np.column_stack([slower, share])
    found = fit(features, seconds, np.minimum(step_s * share, seconds / 2))
    predicted = features @ found + np.minimum(step_s * share, seconds / 2)
    return found, doubling, np.abs(predicted / seconds - 1)


def _step_s(one: Measured) -> float:
    return one.decode_s / one.decoded_tokens


def _batch(one: Measured) -> float:
    """Requests in a step that decodes."""
    return max(1.0, one.decode_tokens_per_s * _step_s(one))


def _prompt_tokens(one: Measured) -> float:
    """Computed tokens of a prompt, which one step takes unless it is long."""
    return max(1.0, (one.prompt_tokens - one.cached_tokens) / one.prompts)


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
