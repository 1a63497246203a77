"""How many KV tokens a pool needs room for, from the samples of its history.

Pressure is (pinned + waiting) over the capacity of the ready replicas. Pinned tokens are held by
running requests; waiting ones are the uncached prompts and the expected outputs of requests that
wait in replicas and routers. Cached tokens never count, because they can be evicted. Only the share
of the capacity that replicas can fill counts as room: a replica that is short of compute lets
requests wait while memory is left (`History.usable_share`).

If a replica takes longer to start than a request runs, a queue counts for less than its tokens.
Replicas that arrive after the queue was served would be useless, and the queue grows while they
start, so it would ask for more and more. Therefore a queue asks at most for two things: room for
what arrives (by Little's law, arrivals per second times the seconds that a token stays pinned), and
room to clear the queue within the start time of a replica, or within the averaging window if that
is longer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pando_operator.scaling.history.history import History, Sample

ASSUMED_START_S = 60.0
"""Start time in use until a pool's own is learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Averages over a window, in KV tokens and seconds."""

    pinned: float
    waiting: float
    release_per_s: float
    growth_per_s: float  # of pinned and waiting together

    @property
    def total(self) -> float:
        return self.pinned + self.waiting


def demand_of(samples: tuple[Sample, ...], window_s: float) -> Demand | None:
    """Averages over the window; None without samples."""
    inside = within(samples, window_s)
    if not inside:
        return None
    return Demand(
        pinned=average(inside, lambda sample: sample.pinned_tokens),
        waiting=average(inside, lambda sample: sample.waiting_tokens),
        release_per_s=average(inside, lambda sample: sample.release_tokens_per_s),
        growth_per_s=slope(inside, lambda sample: sample.demand_tokens),
    )


def needed_tokens(
    demand: Demand, history: History, start_s: float | None, window_s: float
) -> float:
    """KV tokens that the demand needs room for; at most `demand.total`.

    Args:
        start_s: learned time from a decision to a ready replica.
        window_s: the policy's averaging window.
    """
    residence_s, start_s = history.residence_s, start_s or ASSUMED_START_S
    if residence_s is None or residence_s >= start_s or not demand.waiting:
        return demand.total
    arriving = max(0.0, demand.release_per_s + demand.growth_per_s) * residence_s
    return min(demand.total, arriving + demand.waiting * residence_s / max(start_s, window_s))


def within(samples: tuple[Sample, ...], window_s: float) -> tuple[Sample, ...]:
    """The newest sample and those at most `window_s` older."""
    if not samples:
        return ()
    since_s = samples[-1].at_s - window_s
    return tuple(sample for sample in samples if sample.at_s >= since_s)


def average(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """Average over time: each sample stands for the time since the previous one."""
    passed_s = samples[-1].at_s - samples[0].at_s
    if passed_s <= 0:
        return value(samples[-1])
    return sum(value(b) * (b.at_s - a.at_s) for a, b in pairwise(samples)) / passed_s


def slope(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """Growth per second, by linear least squares; 0.0 for fewer than two samples."""
    if len(samples) < 2:
        return 0.0
    middle_s = sum(sample.at_s for sample in samples) / len(samples)
    mean = sum(map(value, samples)) / len(samples)
    spread = sum((sample.at_s - middle_s) ** 2 for sample in samples)
    if spread <= 0:
        return 0.0
    return sum((s.at_s - middle_s) * (value(s) - mean) for s in samples) / spread
