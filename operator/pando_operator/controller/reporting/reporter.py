"""Reports each reconcile of a pool: its status, Events on changes, metrics, rows in Redis."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from pando_fleet.records.decisions import PastDecision
from pando_operator.adapters.report import served, summary
from pando_operator.controller.loop_steps import as_json, moment, rounded
from pando_operator.controller.memory import Memory
from pando_operator.controller.observation import Observation
from pando_operator.controller.reporting.status import is_due
from pando_operator.controller.shared import Shared
from pando_operator.controller.verdicts import (
    Verdict,
    adapters_ready,
    available,
    conditions,
    rollout,
    scaling_active,
    scaling_limited,
    stalled,
    tuned_for_other_traffic,
    unapplied,
    waiting,
)
from pando_operator.kube.events import EventType
from pando_operator.kube.resources import MANAGER, WORKER_POOLS, Key, Object
from pando_operator.lifecycle.actions import Action, Annotate, SetReplicas
from pando_operator.lifecycle.pods import DRAIN
from pando_operator.objects.labels import selector_text
from pando_operator.resource.adapters import AdapterStatus
from pando_operator.resource.scaling import Mode
from pando_operator.resource.status import Condition, ConditionType, WorkerPoolStatus
from pando_operator.scaling import to_status

log = logging.getLogger("pando.operator")

EXPECTED_S = 30.0
"""Interval at which a pool's row is written again, in case Redis lost it."""


@dataclass(frozen=True, slots=True)
class Reported:
    """An Event."""

    kind: EventType
    reason: str
    message: str


class Reporter:
    """Reports one pool."""

    def __init__(self, shared: Shared, key: Key) -> None:
        self._shared, self._key = shared, key
        # When the row was written, and its names.
        self._name = shared.settings.name_in_fleet(key.namespace, key.name)
        self._expected: tuple[float, tuple[str, ...]] | None = None
        self._shadows: set[str] = set()  # shadow policies that have a metric

    async def status(self, seen: Observation, memory: Memory) -> None:
        """Writes the status if that is due, and an Event for each change. Raises KubeError."""
        recommends = seen.mode is Mode.RECOMMEND
        before = seen.pool.status
        after = WorkerPoolStatus(
            observed_generation=seen.pool.metadata.generation,
            replicas=seen.census.replicas,
            ready_replicas=seen.census.ready,
            updated_replicas=seen.census.updated,
            starting_replicas=seen.census.starting,
            stalled_replicas=seen.census.stalled,
            draining_replicas=seen.census.draining,
            selector=selector_text(seen.pool.name),
            desired=seen.desired,
            pressure=rounded(seen.decision.pressure),
            reason=seen.reason,
            recommended=seen.decision.desired if recommends else None,
            conditions=conditions(
                before.conditions,
                (
                    *_progress(seen, memory),
                    available(seen.mode, seen.census, seen.desired),
                    scaling_active(seen.mode, seen.decision, is_starting=seen.is_starting),
                    scaling_limited(seen.mode, seen.decision, seen.gpus.reason),
                    *self._on_adapters(seen),
                    *_on_tuning(seen, memory),
                    seen.degraded,
                    stalled(seen.degraded),
                ),
                seen.pool.metadata.generation,
                moment(seen.now),
            ),
            decisions=memory.decisions,
            shadows=tuple(shadow.result for shadow in memory.shadows.values()),
            adapters=seen.adapters,
            adapters_ready=summary(seen.adapters),
            tuning=memory.tuning,
            start_seconds=memory.starts,
            history=to_status(memory.history),
        )
        await self._write(seen.item, before, after, memory)

    @staticmethod
    def _on_adapters(seen: Observation) -> list[Verdict]:
        """A pool that never had adapters has no such condition."""
        types = {one.type for one in seen.pool.status.conditions}
        if not seen.adapters and ConditionType.ADAPTERS_READY not in types:
            return []
        return [adapters_ready(seen.adapters)]

    async def refuse(
        self, item: Object, verdict: Verdict, memory: Memory | None, now: float
    ) -> None:
        """Reports that a pool cannot be reconciled, in its conditions only."""
        before = _status_of(item)
        generation = int(item["metadata"].get("generation", 0))
        inactive = Verdict(
            ConditionType.SCALING_ACTIVE, False, verdict.reason, "see the condition Degraded"
        )
        after = before.model_copy(
            update={
                "observed_generation": generation,
                "conditions": conditions(
                    before.conditions,
                    (*unapplied(verdict.reason), inactive, verdict, stalled(verdict)),
                    generation,
                    moment(now),
                ),
            }
        )
        await self._write(item, before, after, memory)
        self._shared.metrics.degraded.labels(*self._labels).set(1)

    async def changed(self, item: Object, before: int, after: int, reason: str) -> None:
        """Reports a change of the desired size."""
        grown = after > before
        word, direction = ("ScaledUp", "up") if grown else ("ScaledDown", "down")
        await self._say(item, Reported("Normal", word, f"from {before} to {after}: {reason}"))
        self._shared.metrics.decisions.labels(*self._labels, direction).inc()

    async def acted(self, item: Object, actions: Iterable[Action], *, moves: bool) -> None:
        """Reports what a plan means for people: pods that leave, or stay after all.

        Args:
            moves: whether the plan is one larger than the pool, since its only replica has to move.
        """
        for action in actions:
            if moves and isinstance(action, SetReplicas):
                what = "the only replica's node takes no new pods; it leaves once another serves"
                await self._say(item, Reported("Normal", "Moving", what))
            if isinstance(action, Annotate) and DRAIN in dict(action.annotations):
                leaves = dict(action.annotations)[DRAIN] is not None
                said = (
                    Reported(
                        "Normal", "Draining", f"{action.pod} takes no new requests and will leave"
                    )
                    if leaves
                    else Reported("Normal", "Kept", f"{action.pod} is needed again and stays")
                )
                await self._say(item, said)

    async def overruled(self, item: Object, what: str) -> None:
        """Reports that the operator sets back a size that somebody else has written."""
        await self._say(item, Reported("Warning", "Overruled", what))

    def forget_rows(self) -> None:
        """Write all rows again next time: Redis is unreachable and may come back empty."""
        self._expected = None

    async def rows(self, seen: Observation, memory: Memory, *, decided: bool) -> None:
        """Writes the rows that routers read from Redis. Raises FleetError."""
        names = (seen.pool.spec.model_name, *served(seen.adapters))
        last = self._expected
        is_due = last is None or last[1] != names or seen.now - last[0] >= EXPECTED_S
        if is_due or not seen.census.ready:  # a sleeping pool is known to routers only by this row
            await self._shared.expected.put(self._name, names, owner=str(self._key))
        if is_due:
            self._expected = seen.now, names
            decided = True  # Redis may have lost these rows, too
        if decided:
            past = [
                PastDecision(
                    at_s=one.time.timestamp(),
                    before=one.from_replicas,
                    after=one.to_replicas,
                    reason=one.reason,
                )
                for one in memory.decisions
            ]
            await self._shared.past.put(self._name, past)

    def measure(self, seen: Observation, started: Sequence[float], memory: Memory) -> None:
        metrics, labels = self._shared.metrics, self._labels
        for state in ("ready", "starting", "stalled", "draining"):
            metrics.replicas.labels(*labels, state).set(getattr(seen.census, state))
        metrics.desired.labels(*labels).set(seen.desired)
        if seen.mode is Mode.RECOMMEND:
            metrics.recommended.labels(*labels).set(seen.decision.desired)
        else:
            metrics.recommended.remove(*labels)
        if seen.decision.pressure is None:
            metrics.pressure.remove(*labels)
        else:
            metrics.pressure.labels(*labels).set(seen.decision.pressure)
        metrics.degraded.labels(*labels).set(seen.degraded.holds or 0)
        for state, count in _counted(seen.adapters).items():
            metrics.adapters.labels(*labels, state).set(count)
        for name in self._shadows - memory.shadows.keys():
            metrics.shadow.remove(*labels, name)
        self._shadows = set(memory.shadows)
        for name, shadow in memory.shadows.items():
            metrics.shadow.labels(*labels, name).set(shadow.result.desired)
        for seconds in started:
            metrics.start_seconds.labels(*labels).observe(seconds)

    @property
    def _labels(self) -> tuple[str, str]:
        return self._key.namespace, self._key.name

    async def _write(
        self,
        item: Object,
        before: WorkerPoolStatus,
        after: WorkerPoolStatus,
        memory: Memory | None,
    ) -> None:
        if memory and memory.reported and memory.reported[0] == item.get("status"):
            # An older CRD drops fields that it does not know: they are no change each time.
            before = memory.reported[1]
        age_s = self._shared.clock() - memory.written_at if memory else inf
        if not is_due(before, after, age_s):
            return
        metadata = {"name": self._key.name, "namespace": self._key.namespace}
        written = await self._shared.kube.apply(
            WORKER_POOLS,
            {"metadata": metadata, "status": as_json(after)},
            manager=MANAGER,
            subresource="status",
        )
        self._shared.caches.adopt(WORKER_POOLS, written)
        if memory:
            memory.written_at = self._shared.clock()
            memory.reported = written.get("status"), after
        for said in _changes(before, after):
            await self._say(item, said)

    async def _say(self, item: Object, said: Reported) -> None:
        extra = {"pool": str(self._key), "reason": said.reason, "said": said.message}
        log.log(logging.WARNING if said.kind == "Warning" else logging.INFO, "event", extra=extra)
        await self._shared.recorder.record(item, said.kind, said.reason, said.message)


def _progress(seen: Observation, memory: Memory) -> tuple[Verdict, Verdict]:
    if seen.refusal is not None:
        return unapplied(seen.degraded.reason)
    ready, progressing = rollout(seen.census, seen.desired, is_paused=seen.pool.spec.paused)
    return ready, progressing if memory.waits_for is None else waiting(memory.waits_for)


def _on_tuning(seen: Observation, memory: Memory) -> list[Verdict]:
    """A pool that was never tuned has no such condition."""
    types = {one.type for one in seen.pool.status.conditions}
    if memory.tuning is None and ConditionType.TUNED_FOR_OTHER_TRAFFIC not in types:
        return []
    return [tuned_for_other_traffic(memory.tuning, moment(seen.now))]


def _status_of(item: Object) -> WorkerPoolStatus:
    """The item's status; an empty one if it cannot be read, since anyone may have written it."""
    try:
        return WorkerPoolStatus.model_validate(item.get("status") or {})
    except ValueError:
        return WorkerPoolStatus()


def _counted(adapters: Sequence[AdapterStatus]) -> Counter[str]:
    """Adapters by state."""
    counts = Counter(dict.fromkeys(("ready", "missing", "failing", "removing"), 0))
    for one in adapters:
        there = "ready" if one.is_everywhere else "missing"
        counts["removing" if one.removing else "failing" if one.failing else there] += 1
    return counts


def _words(one: Condition) -> tuple[str, ...]:
    """What counts as a change of a condition; the message only if it says what a person must do."""
    message = one.message if one.type == ConditionType.DEGRADED else ""
    return one.status, one.reason, message


def _changes(before: WorkerPoolStatus, after: WorkerPoolStatus) -> list[Reported]:
    """An Event for each condition and adapter that changed."""
    return [*_changed_conditions(before, after), *_changed_adapters(before, after)]


def _changed_adapters(before: WorkerPoolStatus, after: WorkerPoolStatus) -> list[Reported]:
    """An Event when an adapter begins to fail, or has left all replicas."""
    was = {one.name: one for one in before.adapters}
    said = []
    for one in after.adapters:
        old = was.pop(one.name, None)
        if one.failing and not (old and old.failing and old.source == one.source):
            said.append(Reported("Warning", "AdapterFailing", f"{one.name}: {one.state}"))
    left = (Reported("Normal", "AdapterRemoved", f"{name} is on no replica") for name in was)
    return [*said, *left]


def _changed_conditions(before: WorkerPoolStatus, after: WorkerPoolStatus) -> list[Reported]:
    """First values are reported only if they are bad."""
    was = {one.type: one for one in before.conditions}
    said = []
    for one in after.conditions:
        old = was.get(one.type)
        if old is not None and _words(old) == _words(one):
            continue
        is_bad = one.status == ("True" if one.type == ConditionType.DEGRADED else "False")
        match one.type:
            case ConditionType.DEGRADED if is_bad:
                said.append(Reported("Warning", one.reason, one.message))
            case ConditionType.DEGRADED if old:
                said.append(Reported("Normal", "Recovered", "the problem is gone"))
            case ConditionType.AVAILABLE if old and old.status != one.status:
                said.append(
                    Reported("Warning", "NotReady", one.message)
                    if is_bad
                    else Reported("Normal", "Ready", one.message)
                )
            case ConditionType.ADAPTERS_READY if old and not is_bad and old.status != one.status:
                said.append(Reported("Normal", "AdaptersReady", one.message))
            case ConditionType.TUNED_FOR_OTHER_TRAFFIC if one.status == "True":
                said.append(Reported("Normal", "TunedForOtherTraffic", one.message))
            case ConditionType.SCALING_ACTIVE if one.reason == "SignalsMissing":
                said.append(Reported("Warning", one.reason, one.message))
            case ConditionType.SCALING_ACTIVE if old and old.reason == "SignalsMissing":
                said.append(Reported("Normal", "SignalsBack", one.message))
    return said
