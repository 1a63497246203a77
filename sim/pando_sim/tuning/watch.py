"""Runs a candidate, and ends the run once another candidate is better whatever still comes."""

import math
import time
from dataclasses import dataclass, replace

from pando_fleet.records.marks import MarkKind
from pando_operator.resource.policy import ScalingPolicy
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
from pando_sim.tuning.excerpt import Excerpt
from pando_sim.tuning.goal import Goal
from pando_sim.tuning.score import Score, score_of
from pando_sim.tuning.variations import AS_RECORDED, Variation, faults, varied, varied_spec


@dataclass(frozen=True, slots=True)
class Bounds:
    """When a run is lost: costs and misses never fall while it goes on."""

    front: tuple[tuple[float, float], ...] = ()  # GPU-hours and missed share of finished runs
    most_missed: float = 1.0  # share
    most_hours: float = math.inf  # GPU-hours

    def is_lost(self, gpu_hours: float, missed: float) -> bool:
        """Both are what the run will have at least."""
        if missed > self.most_missed or gpu_hours > self.most_hours:
            return True
        return any(hours <= gpu_hours and share <= missed for hours, share in self.front)


NO_BOUNDS = Bounds()


class _Beaten(Exception):  # noqa: N818 - it is no error
    """The run needs no end."""


class _Watch:
    """A `Scaler` that counts what another one's decisions cost."""

    def __init__(
        self, scaler: Scaler, goal: Goal, bounds: Bounds, played: Excerpt, pool: WorkerPool
    ) -> None:
        self.sets_marks = scaler.sets_marks
        self.every_s = scaler.every_s
        self._scaler = scaler
        self._goal = goal
        self._bounds = bounds
        self._played = played
        self._part_s = played.part_s
        self._weights: list[float] = played.request_weights().tolist()
        self._all = math.fsum(self._weights)
        self._least = _least(pool.spec.scaling)
        self._gpus = pool.spec.tensor_parallel_size
        # All of these are sums over stretches times weights, so they never fall.
        self._passed_s = 0.0
        self._replica_s = 0.0
        self._late = self._slow = self._missed = self._unanswered = 0.0
        self._began_s = time.perf_counter()

    async def act(self, fleet: FleetControl) -> None:
        await self._scaler.act(fleet)
        passed_s = self._played.seconds_until(fleet.now_s)
        self._replica_s += fleet.size * (passed_s - self._passed_s)
        self._passed_s = passed_s
        if self._bounds.is_lost(self._least_hours, self._missed / self._all):
            raise _Beaten

    @property
    def _least_hours(self) -> float:
        """GPU-hours that the run will have at least."""
        rest_s = self._part_s - self._passed_s
        return (self._replica_s + self._least * rest_s) / 3600 * self._gpus

    def ended(self, request: Request, served: Served) -> None:
        # The scaler is not told: it would only record what each of its changes cost.
        weight = self._weights[request.number]
        finished = served.outcome is Outcome.FINISHED
        late = not (finished and served.ttft_s <= self._goal.ttft_s)
        slow = not (finished and served.token_gap_s <= self._goal.gap_s)
        self._unanswered += weight * (not finished)
        self._late += weight * late
        self._slow += weight * slow
        self._missed += weight * (late or slow)

    def prefilled(self, kind: MarkKind, tokens: int) -> None:
        self._scaler.prefilled(kind, tokens)

    def close(self, fleet: FleetControl) -> None:
        self._scaler.close(fleet)

    def outcome(self) -> Score:
        """Of a lost run: as many replicas in the rest as until now, and no more misses."""
        share = self._passed_s / self._part_s if self._part_s else 1.0
        so_far = self._replica_s / 3600 * self._gpus
        return Score(
            gpu_hours=max(so_far / share if share else 0.0, self._least_hours),
            hours=self._part_s / 3600,
            requests=len(self._weights),
            missed=self._missed / self._all,
            late=self._late / self._all,
            slow=self._slow / self._all,
            unanswered=self._unanswered / self._all,
            ended_at=share,
            wall_s=time.perf_counter() - self._began_s,
        )


def _least(scaling: ScalingPolicy) -> int:
    """Replicas that the pool has at any time."""
    other = [(one.min_replicas, one.max_replicas) for one in scaling.schedules]
    given = [bound for bounds in other for bound in bounds if bound is not None]
    return min([scaling.min_replicas, *given])


async def run(
    spec: FleetSpec,
    pool: WorkerPool,
    excerpt: Excerpt,
    goal: Goal,
    *,
    bounds: Bounds = NO_BOUNDS,
    variation: Variation = AS_RECORDED,
) -> Score:
    """Simulates a part of a trace with a candidate's pool, scaled by the operator.

    `excerpt`: with at least one request. Raises what `simulate` raises.
    """
    played = varied(excerpt, variation)
    clock = played.clock(spec.clock, variation.speed)
    spec = replace(varied_spec(spec, variation), clock=clock)
    scaler = scaler_of(SCALERS[spec.scaling], spec, pool, records=False)
    watch = _Watch(scaler, goal, bounds, played, pool)
    try:
        record = await simulate(
            spec,
            iter(played.requests),
            cost=load(spec.worker.cost_model),
            policy=POLICIES[spec.policy].factory(spec),
            scaler=watch,
            faults=faults(played.requests, variation),
        )
    except _Beaten:
        return watch.outcome()
    return score_of(record, goal, played, pool.spec.tensor_parallel_size)
