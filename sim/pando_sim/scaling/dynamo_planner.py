"""`PlannerController`: NVIDIA Dynamo's planner on targets of latency, for engines that compute both
prompts and tokens (`mode: agg`, `optimization_target: sla`, scaling by throughput).

Every 180 s it expects as many requests of the same mean sizes as in the last 180 s (its `constant`
predictor), looks for the largest batch of one engine at which the predicted time of a step and of a
prompt are within the targets, and wants as many replicas as serve the requests at that batch. The
load that an engine carries follows from Little's law. It has no percentiles, windows or tolerance.

Dynamo predicts a step's time by a regression over measured steps; here it is the simulation's own
cost model, which is exact, so this planner does at least as well.

https://github.com/ai-dynamo/dynamo, components/src/dynamo/planner: core/throughput_scaling.py
(`_throughput_agg`), core/perf_model/agg.py (`find_best_engine_agg_rps`) and config/defaults.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from pando_fleet.registry.replica import Heartbeat
from pando_operator.resource.policy import ScalingPolicy
from pando_sim.cost import load
from pando_sim.cost.model import CostModel
from pando_sim.fleet.control import FleetControl
from pando_sim.scaling.cluster import Cluster
from pando_sim.scaling.kind import Change
from pando_sim.spec import FleetSpec

INTERVAL_S = 180.0
LOOK_S = 5.0
DEFAULT_TTFT_S, DEFAULT_ITL_S = 0.5, 0.05


@dataclass(frozen=True, slots=True)
class Traffic:
    """The requests of an interval."""

    per_s: float
    prompt: float  # mean tokens
    answer: float
    hit_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One replica, and the targets for it."""

    cost: CostModel
    step_tokens: int
    kv_tokens: int
    most_requests: int
    ttft_s: float
    itl_s: float

    def requests_per_s(self, traffic: Traffic) -> float:
        """The most that it can serve within the targets."""
        context = traffic.prompt + traffic.answer / 2
        computed = traffic.prompt * (1 - traffic.hit_rate)
        best = 0.0
        for batch in range(1, self._most(traffic, context) + 1):
            share = min(batch * computed / max(1.0, traffic.answer), self.step_tokens)
            step_s = self._step_s(share, batch, context)
            is_met = step_s <= self.itl_s and self._ttft_s(share + computed, batch, context) <= (
                self.ttft_s
            )
            if is_met or batch == 1:
                best = batch / (traffic.answer * step_s)
            if not is_met:
                break
        return best

    def _most(self, traffic: Traffic, context: float) -> int:
        by_room = max(1, int(self.kv_tokens / max(1.0, context)))
        # Above, fewer prompts can be computed than answers end.
        by_balance = int(traffic.answer * self.step_tokens / (traffic.prompt + traffic.answer))
        return max(1, min(by_room, self.most_requests, self.step_tokens - 1, by_balance))

    def _step_s(self, prefill: float, batch: int, context: float) -> float:
        tokens = round(prefill)
        seen = tokens * tokens // 2
        return self.cost.step_s(tokens, seen, batch, round(batch * context))

    def _ttft_s(self, tokens: float, batch: int, context: float) -> float:
        total, left = 0.0, tokens
        for _ in range(ceil(tokens / self.step_tokens)):
            total += self._step_s(min(left, self.step_tokens), batch, context)
            left -= self.step_tokens
        return total


class PlannerController:
    def __init__(self, engine: Engine, policy: ScalingPolicy) -> None:
        """
        Args:
            policy: only its bounds are used.
        """
        self._engine = engine
        self._policy = policy
        self._look_s = 0.0
        self._plan_s = INTERVAL_S
        self._waiting = 0
        self._before: dict[str, Heartbeat] = {}  # by incarnation, as last heard
        self._sums = dict.fromkeys(_COUNTERS, 0.0)  # of this interval

    def is_due(self, fleet: FleetControl, cluster: Cluster) -> bool:
        return fleet.now_s >= self._look_s

    async def look(self, fleet: FleetControl, cluster: Cluster) -> Change | None:
        self._look_s = fleet.now_s + LOOK_S
        beats = fleet.heard()
        for beat in beats:
            last = self._before.get(beat.incarnation)
            for name in _COUNTERS:
                self._sums[name] += getattr(beat, name) - (getattr(last, name) if last else 0)
            self._before[beat.incarnation] = beat
        if fleet.now_s < self._plan_s:
            return None
        self._plan_s += INTERVAL_S
        waiting = fleet.queued() + sum(beat.waiting for beat in beats)
        traffic = _traffic(self._sums, waiting - self._waiting)
        self._waiting, self._sums = waiting, dict.fromkeys(_COUNTERS, 0.0)
        rate = self._engine.requests_per_s(traffic) if traffic else 0.0
        if traffic is None or not rate:
            return None
        before, wanted = cluster.replicas, ceil(traffic.per_s / rate)
        after = min(max(wanted, self._policy.min_replicas, 1), self._policy.most_replicas)
        if after == before:
            return None
        cluster.scale(fleet, after)
        words = f"{traffic.per_s:.3g} requests/s, {rate:.3g} per replica: wants {wanted}"
        return Change(before, after, words)


_COUNTERS = (
    "prompts_total",
    "prompt_tokens_total",
    "cached_prompt_tokens_total",
    "output_tokens_total",
)


def _traffic(sums: Mapping[str, float], queued: int) -> Traffic | None:
    """None without a request. `queued` more wait than an interval ago: they arrived, too."""
    prompts = sums["prompts_total"]
    if not prompts or not sums["output_tokens_total"]:
        return None
    return Traffic(
        per_s=max(0.0, prompts + queued) / INTERVAL_S,
        prompt=sums["prompt_tokens_total"] / prompts,
        answer=max(1.0, sums["output_tokens_total"] / prompts),
        hit_rate=sums["cached_prompt_tokens_total"] / sums["prompt_tokens_total"],
    )


def planner_controller(spec: FleetSpec, policy: ScalingPolicy) -> PlannerController:
    target, worker = policy.target, spec.worker
    engine = Engine(
        cost=load(worker.cost_model),
        step_tokens=worker.chunked_prefill_size,
        kv_tokens=worker.capacity_tokens,
        most_requests=min(worker.max_running_requests, spec.router.max_outstanding or 1024),
        ttft_s=target.ttft_seconds or DEFAULT_TTFT_S,
        itl_s=target.inter_token_seconds or DEFAULT_ITL_S,
    )
    return PlannerController(engine, policy)
