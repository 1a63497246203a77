"""`Score`: what a run says about its candidate."""

import math

import msgspec
import numpy as np

from pando_sim.records import Run
from pando_sim.report.columns import Bools, Floats, columns
from pando_sim.tuning.excerpt import Excerpt
from pando_sim.tuning.goal import ALLOWED, WEEK_HOURS, Goal

LEAST_MISSED = 0.001  # fewer misses are as good as this many
LEAST_HOURS = 1e-6


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """If the run was of an excerpt, numbers are estimates for the whole part of the trace. Shares
    are of all requests, those that were refused or failed included."""

    gpu_hours: float
    hours: float  # of the trace's part
    requests: int  # that were played
    missed: float  # share that missed one of the goal's times
    late: float  # share without a first token in time
    slow: float  # share without tokens in time
    unanswered: float  # share that was refused or failed
    ttft_p99_s: float | None = None  # of requests that have a first token
    gap_p99_s: float | None = None
    hit_rate: float | None = None
    most_replicas: int = 0
    ended_at: float | None = None  # lost: the share of the time after which the run was ended;
    # misses are then those until it ended, and GPU-hours those at the same rate
    wall_s: float = 0.0
    allowed: float | None = None  # to miss a time: what today's manifest misses on these requests,
    # if a candidate shall be as good

    @property
    def gpu_hours_a_week(self) -> float:
        return self.gpu_hours * WEEK_HOURS / self.hours

    @property
    def is_whole(self) -> bool:
        return self.ended_at is None

    def meets(self, goal: Goal) -> bool:
        """Whether 99 % of the requests keep each time, and the budget is kept; or whether no more
        miss one than today."""
        if goal.budget is not None and self.gpu_hours_a_week > goal.budget:
            return False
        if self.allowed is not None:
            return self.missed <= self.allowed
        return max(self.late, self.slow) <= ALLOWED

    @property
    def log_hours(self) -> float:
        """The logarithm of its GPU-hours."""
        return math.log(max(self.gpu_hours, LEAST_HOURS))

    @property
    def log_missed(self) -> float:
        return math.log(self.missed + LEAST_MISSED)

    def price(self, goal: Goal) -> float:
        """What shall be as low as possible, as a logarithm: GPU-hours, or misses with a budget."""
        if goal.budget is not None:
            return self.log_missed
        return self.log_hours

    def excess(self, goal: Goal) -> tuple[float, ...]:
        """What must not be more than allowed, as logarithms of its ratio to that: both kinds of
        misses, or all if today's manifest says how many, or GPU-hours with a budget."""
        if goal.budget is not None:
            return (math.log(max(self.gpu_hours_a_week, LEAST_HOURS) / goal.budget),)
        if self.allowed is not None:
            return (math.log((self.missed + LEAST_MISSED) / (self.allowed + LEAST_MISSED)),)
        allowed = ALLOWED + LEAST_MISSED
        return tuple(math.log((one + LEAST_MISSED) / allowed) for one in (self.late, self.slow))

    def keeps(self, goal: Goal) -> bool:
        """Whether the run was not ended early, and there is no excess."""
        return self.is_whole and max(self.excess(goal)) <= 0

    def beats(self, other: "Score") -> bool:
        """Whether it costs less for no more misses, or has fewer for no more cost."""
        mine, others = (self.gpu_hours, self.missed), (other.gpu_hours, other.missed)
        return mine != others and mine[0] <= others[0] and mine[1] <= others[1]


def score_of(run: Run, goal: Goal, played: Excerpt, gpus_per_replica: int) -> Score:
    """`run`: a whole one of `played`, which has at least one request."""
    requests = columns(run.served)
    weights = played.request_weights()[[one.number for one in run.served]]
    late = ~(requests.finished & (requests.ttft <= goal.ttft_s))
    slow = ~(requests.finished & (np.nan_to_num(requests.gap) <= goal.gap_s))
    has_first = ~np.isnan(requests.first_token)
    prompt = float(requests.prompt[has_first] @ weights[has_first])
    cached = float(requests.cached[has_first] @ weights[has_first])

    def share(which: Bools) -> float:
        return float(weights[which].sum() / weights.sum())

    return Score(
        gpu_hours=round(_replica_seconds(run, played) / 3600 * gpus_per_replica, 4),
        hours=played.part_s / 3600,
        requests=len(run.served),
        missed=share(late | slow),
        late=share(late),
        slow=share(slow),
        unanswered=share(~requests.finished),
        ttft_p99_s=_p99(requests.ttft, weights),
        gap_p99_s=_p99(requests.gap, weights),
        hit_rate=cached / prompt if prompt else None,
        most_replicas=max(sample.replicas for sample in run.samples),
        wall_s=run.wall_s,
    )


def _replica_seconds(run: Run, played: Excerpt) -> float:
    """Of the whole part. After the last answer the pool stays as it is."""
    times = [sample.at_s for sample in run.samples]
    totals = [sample.replica_seconds for sample in run.samples]
    rest_s = max(0.0, played.edges_s[-1] - times[-1])
    times.append(times[-1] + rest_s)
    totals.append(totals[-1] + run.samples[-1].replicas * rest_s)
    return played.weighed(times, totals)


def _p99(values: Floats, weights: Floats) -> float | None:
    known = ~np.isnan(values) & (weights > 0)
    if not known.any():
        return None
    return float(np.quantile(values[known], 0.99, weights=weights[known], method="inverted_cdf"))
