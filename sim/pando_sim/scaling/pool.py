"""`PoolController`: Pando's operator: its own signals, decision and plan, in the operator's order.

It reads Redis and the pods, and carries out its plan by marks in Redis and on the pods, like the
operator itself. It runs when a pod has changed, and otherwise at the operator's default periods.
Routers warm and hand off for its marks. Rollouts and shadow policies are not simulated.
"""

from collections.abc import Sequence

from pando_fleet.placement.worth import Worths
from pando_fleet.records.loads import Loads
from pando_fleet.records.marks import Mark, Marks
from pando_fleet.redis.client import FleetError
from pando_fleet.registry.registry import Registry
from pando_fleet.registry.replica import Replica
from pando_operator.controller.loop_steps import decided, follow_replaced, follow_starts, staying
from pando_operator.controller.memory import Memory
from pando_operator.controller.observing.reading import Reading, reading_of
from pando_operator.lifecycle.actions import (
    Action,
    Annotate,
    ClearMark,
    SetGate,
    SetMark,
    SetReplicas,
)
from pando_operator.lifecycle.census import Census, census
from pando_operator.lifecycle.choice import is_open
from pando_operator.lifecycle.plan import plan
from pando_operator.lifecycle.pods import PodView
from pando_operator.resource.pool import WorkerPool
from pando_operator.scaling import Decision, late_after_s, learned_start_s
from pando_operator.settings import OperatorSettings
from pando_sim.day_clock import DayClock
from pando_sim.fleet.control import FleetControl
from pando_sim.scaling.cluster import Cluster
from pando_sim.scaling.kind import Change


class _Redis:
    """What the operator's `Reader` reads."""

    def __init__(self, fleet: FleetControl) -> None:
        client = fleet.redis
        self.marks = Marks(client, fleet.pool, fleet.redis_ms)
        self._fleet = fleet
        self._registry = Registry(client, fleet.redis_ms)
        self._loads = Loads(client, fleet.pool, fleet.redis_ms)
        self._worths = Worths(client, fleet.pool, fleet.redis_ms)
        self._replicas: Sequence[Replica] = ()

    def read(self) -> Reading:
        """Reads what the simulation does not know. Raises FleetError."""
        fleet, marks = self._fleet, list[Mark]()
        if (replicas := fleet.registered()) is not None:
            (leased,) = fleet.read(self._loads.read())
        else:
            marks, replicas, leased = fleet.read(
                self.marks.all(), self._registry.replicas(fleet.pool), self._loads.read()
            )
            fleet.may_have_marks = bool(marks)
        self._replicas = replicas
        return reading_of(marks, replicas, fleet.queues(), leased)

    async def worths(self) -> dict[str, float]:
        """Raises FleetError."""
        return await self._worths.read(self._replicas)


class PoolController:
    """Scales by a pool's `spec.scaling`, whatever its mode."""

    def __init__(self, pool: WorkerPool, replicas: int, clock: DayClock) -> None:
        self._scaling = pool.spec.scaling
        self._clock = clock
        self._memory = Memory.of(pool)
        self._memory.desired = replicas
        self._next_s = 0.0
        self._redis: _Redis | None = None

    def is_due(self, fleet: FleetControl, cluster: Cluster) -> bool:
        return cluster.has_changed or fleet.now_s >= self._next_s

    async def look(self, fleet: FleetControl, cluster: Cluster) -> Change | None:
        memory, now_s = self._memory, cluster.now_s(fleet)
        scaling, hour_s = self._scaling, self._clock.unix_at(fleet.now_s)
        redis = self._connected(fleet)
        reading = _read(redis)
        pods = cluster.pods(reading.requests if reading else None)
        late_s = late_after_s(learned_start_s(memory.starts))
        counts, current = census(pods, now_s, late_s), staying(pods, cluster.replicas)
        follow_replaced(memory, current, cluster.replicas, now_s)
        decision = decided(
            scaling, memory.history, current, counts, reading, memory.starts, now_s, hour_s
        )
        memory.history = decision.history
        worths, target = await _choice(redis, reading, decision, pods, cluster.replicas)
        actions = plan(
            pods,
            reading.marks if reading else None,
            target=target,
            replicas=cluster.replicas,
            worths=worths,
            now=now_s,
            scaling=scaling,
        )
        for action in actions:
            await _execute(action, redis, fleet, cluster)
        memory.replicas = cluster.replicas
        change = self._remember(decision, now_s)
        follow_starts(memory, pods, now_s)
        self._next_s = fleet.now_s + _pause_s(counts, decision)
        return change

    def _connected(self, fleet: FleetControl) -> _Redis:
        if self._redis is None:
            self._redis = _Redis(fleet)
        return self._redis

    def _remember(self, decision: Decision, now_s: float) -> Change | None:
        memory = self._memory
        before = decision.current if memory.desired is None else memory.desired
        memory.desired = decision.desired
        if decision.desired == before:
            return None
        memory.history = memory.history.scaled(now_s, before, decision.desired, decision.by)
        return Change(before, decision.desired, decision.reason)


def _pause_s(counts: Census, decision: Decision) -> float:
    """Like the operator: shorter while replicas come or go, or may have to at once."""
    changing = counts.starting or counts.draining or decision.desired != counts.ready
    fields = OperatorSettings.model_fields
    name = "busy_period" if changing or decision.desired == 0 else "period"
    return float(fields[name].default)


def _read(redis: _Redis) -> Reading | None:
    """None while Redis is away."""
    try:
        return redis.read()
    except FleetError:
        return None


async def _choice(
    redis: _Redis, reading: Reading | None, decision: Decision, pods: list[PodView], replicas: int
) -> tuple[dict[str, float], int]:
    """The caches' worths, if a further replica has to leave, and the size to plan for."""
    desired = decision.desired
    if reading is None or not desired or not is_open(pods, desired, replicas):
        return {}, desired
    return await redis.worths(), desired


async def _execute(action: Action, redis: _Redis, fleet: FleetControl, cluster: Cluster) -> None:
    match action:
        case SetMark(kind, replica, lasts_ms, budget_tokens):
            await redis.marks.set(kind, replica, lasts_ms=lasts_ms, budget_tokens=budget_tokens)
            fleet.marked()
        case ClearMark(kind, replica):
            await redis.marks.clear(kind, replica)
        case Annotate(pod, _, annotations):
            cluster.annotate(pod, dict(annotations))
        case SetGate(pod, _, is_open):
            cluster.set_gate(fleet, pod, is_open=is_open)
        case SetReplicas(replicas):
            cluster.scale(fleet, replicas)
