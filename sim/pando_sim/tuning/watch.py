"""Runs a candidate, and ends the run once another candidate is better whatever still comes."""

from collections.abc import Sequence
from dataclasses import dataclass

from pando_fleet.records.marks import MarkKind
from pando_operator.resource.pool import WorkerPool
from pando_sim.cost import load
from pando_sim.fleet.control import FleetControl, Scaler
from pando_sim.fleet.simulate import simulate
from pando_sim.policies import POLICIES
from pando_sim.records import Outcome, Served
from pando_sim.request import Request
from pando_sim.scaling import SCALERS
from pando_sim.scaling.scaler import scaler_of
from pando_sim.spec import FleetSpec
from pando_sim.tuning.goal import Goal
from pando_sim.tuning.score import Score, score_of
from pando_sim.tuning.variations import AS_RECORDED, Variation, faults, varied, varied_spec


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a run is lost: costs and misses never fall while it goes on."""

    front: tuple[tuple[float, float], ...] = ()  # GPU-hours and missed share of finished runs
    most_missed: float = 1.0  # share

    def is_lost(self, gpu_hours: float, missed: float) -> bool:
        """Both are what the run will have at least."""
        if missed > self.most_missed:
            return True
        return any(hours <= gpu_hours and share <= missed for hours, share in self.front)


NO_BOUNDS = Bounds()


class _Beaten(Exception):  # noqa: N818 - it is no error
    """The run needs no end."""


class _Watch:
    """A `Scaler` that counts what another one's decisions cost."""

    def __init__(
        self,
        scaler: Scaler,
        goal: Goal,
        bounds: Bounds,
        requests: int,
        last_s: float,
        pool: WorkerPool,
    ) -> None:
        self.sets_marks = scaler.sets_marks
        self.every_s = scaler.every_s
        self.now_s = 0.0
        self.replica_s = 0.0
        self.ended_requests = self.late = self.slow = self.missed = self.unanswered = 0
        self._scaler = scaler
        self._goal = goal
        self._bounds = bounds
        self._requests = requests
        self._last_s = last_s
        self._least = 0 if pool.spec.scaling.schedules else pool.spec.scaling.min_replicas
        self._gpus = pool.spec.tensor_parallel_size

    async def act(self, fleet: FleetControl) -> None:
        await self._scaler.act(fleet)
        self.replica_s += fleet.size * (fleet.now_s - self.now_s)
        self.now_s = fleet.now_s
        rest_s = max(0.0, self._last_s - self.now_s)
        hours = (self.replica_s + self._least * rest_s) / 3600 * self._gpus
        if self._bounds.is_lost(hours, self.missed / self._requests):
            raise _Beaten

    def ended(self, request: Request, served: Served) -> None:
        # The scaler is not told: it would only record what each of its changes cost.
        finished = served.outcome is Outcome.FINISHED
        late = not (finished and served.ttft_s <= self._goal.ttft_s)
        slow = not (finished and served.token_gap_s <= self._goal.gap_s)
        self.ended_requests += 1
        self.unanswered += not finished
        self.late += late
        self.slow += slow
        self.missed += late or slow

    def prefilled(self, kind: MarkKind, tokens: int) -> None:
        self._scaler.prefilled(kind, tokens)

    def close(self, fleet: FleetControl) -> None:
        self._scaler.close(fleet)

    def outcome(self, hours: float) -> Score:
        """What the run would come to at the rates so far."""
        share = min(1.0, self.now_s / self._last_s) if self._last_s else 1.0
        ended = max(1, self.ended_requests)
        return Score(
            gpu_hours=self.replica_s / 3600 * self._gpus / max(share, 1e-6),
            hours=hours,
            requests=self._requests,
            missed=self.missed / ended,
            late=self.late / ended,
            slow=self.slow / ended,
            unanswered=self.unanswered / ended,
            ended_at=share,
        )


async def run(
    spec: FleetSpec,
    pool: WorkerPool,
    requests: Sequence[Request],
    goal: Goal,
    *,
    bounds: Bounds = NO_BOUNDS,
    variation: Variation = AS_RECORDED,
) -> Score:
    """Simulates a part of a trace with a candidate's pool, scaled by the operator.

    `requests`: at least one. Raises what `simulate` raises.
    """
    played = varied(requests, variation)
    last_s = played[-1].at_s
    spec = varied_spec(spec, variation)
    scaler = scaler_of(SCALERS[spec.scaling], spec, pool, records=False)
    watch = _Watch(scaler, goal, bounds, len(played), last_s, pool)
    try:
        record = await simulate(
            spec,
            iter(played),
            cost=load(spec.worker.cost_model),
            policy=POLICIES[spec.policy].factory(spec),
            scaler=watch,
            faults=faults(played, variation),
        )
    except _Beaten:
        return watch.outcome(last_s / 3600)
    return score_of(record, goal, last_s / 3600, pool.spec.tensor_parallel_size)
