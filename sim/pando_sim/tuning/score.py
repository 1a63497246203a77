"""`Score`: what a run says about its candidate."""

import math

import msgspec
import numpy as np

from pando_sim.records import Run
from pando_sim.report.columns import columns
from pando_sim.report.statistics import spread
from pando_sim.tuning.goal import ALLOWED, WEEK_HOURS, Goal

LEAST_MISSED = 0.001  # fewer misses are as good as this many
LEAST_HOURS = 1e-6


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Shares are of all requests, those that were refused or failed included."""

    gpu_hours: float
    hours: float  # of the trace's part
    requests: int
    missed: float  # share that missed one of the goal's times
    late: float  # share without a first token in time
    slow: float  # share without tokens in time
    unanswered: float  # share that was refused or failed
    ttft_p99_s: float | None = None  # of requests that have a first token
    gap_p99_s: float | None = None
    hit_rate: float | None = None
    most_replicas: int = 0
    ended_at: float | None = None  # lost: the share of the time after which the run was ended; the
    # other numbers are then what it would have come to at the same rates
    wall_s: float = 0.0

    @property
    def gpu_hours_a_week(self) -> float:
        return self.gpu_hours * WEEK_HOURS / self.hours

    @property
    def is_whole(self) -> bool:
        return self.ended_at is None

    def meets(self, goal: Goal) -> bool:
        """Whether 99 % of the requests keep each time, and the budget is kept."""
        if goal.budget is not None and self.gpu_hours_a_week > goal.budget:
            return False
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
        misses, or GPU-hours with a budget."""
        if goal.budget is not None:
            return (math.log(max(self.gpu_hours_a_week, LEAST_HOURS) / goal.budget),)
        allowed = ALLOWED + LEAST_MISSED
        return tuple(math.log((one + LEAST_MISSED) / allowed) for one in (self.late, self.slow))

    def keeps(self, goal: Goal) -> bool:
        """Whether the run was not ended early, and there is no excess."""
        return self.is_whole and max(self.excess(goal)) <= 0

    def beats(self, other: "Score") -> bool:
        """Whether it costs less for no more misses, or has fewer for no more cost."""
        mine, others = (self.gpu_hours, self.missed), (other.gpu_hours, other.missed)
        return mine != others and mine[0] <= others[0] and mine[1] <= others[1]


def score_of(run: Run, goal: Goal, hours: float, gpus_per_replica: int) -> Score:
    """`run`: a whole one, with at least one request."""
    requests = columns(run.served)
    late = ~(requests.finished & (requests.ttft <= goal.ttft_s))
    slow = ~(requests.finished & (np.nan_to_num(requests.gap) <= goal.gap_s))
    ttft, gap = spread(requests.ttft), spread(requests.gap)
    prompt = int(requests.prompt[~np.isnan(requests.first_token)].sum())
    cached = int(requests.cached[~np.isnan(requests.first_token)].sum())
    return Score(
        gpu_hours=round(run.samples[-1].replica_seconds / 3600 * gpus_per_replica, 4),
        hours=hours,
        requests=len(run.served),
        missed=float((late | slow).mean()),
        late=float(late.mean()),
        slow=float(slow.mean()),
        unanswered=float((~requests.finished).mean()),
        ttft_p99_s=None if ttft is None else ttft.p99,
        gap_p99_s=None if gap is None else gap.p99,
        hit_rate=cached / prompt if prompt else None,
        most_replicas=max(sample.replicas for sample in run.samples),
        wall_s=run.wall_s,
    )
