"""Small steps of one reconcile: the decision, replaced pods, start times, records."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from pando_operator.controller.memory import Memory, Shadow
from pando_operator.controller.observing.reading import Reading
from pando_operator.controller.traffic import followed
from pando_operator.lifecycle.census import Census
from pando_operator.lifecycle.moving import spare
from pando_operator.lifecycle.pods import PodView
from pando_operator.lifecycle.rollout import surplus
from pando_operator.resource.policy import ScalingPolicy
from pando_operator.resource.pool import WorkerPool
from pando_operator.resource.status import DECISIONS_KEPT, DecisionRecord, ShadowResult
from pando_operator.resource.tuned_on import tuned_on
from pando_operator.scaling import (
    Decision,
    History,
    Snapshot,
    decide,
    decided_at,
    late_after_s,
    learned_start_s,
    with_start,
)

LONGEST_GAP_S = 60.0
"""Longest gap between two reconciles that counts into a shadow policy's replica-hours."""


def staying(pods: Sequence[PodView], replicas: int, desired: int | None = None) -> int:
    """How many of a Deployment's `replicas` will stay, whether or not they exist yet.

    `replicas` may already exclude some of the draining pods, which Kubernetes will soon delete. It
    may include a successor of the only one of the `desired` pods.
    """
    alive = [pod for pod in pods if pod.is_alive]
    draining = sum(pod.draining_since is not None for pod in alive)
    leave = max(0, draining - surplus(alive, replicas)) + spare(pods, replicas, desired)
    return max(0, replicas - leave)


def decided(
    policy: ScalingPolicy,
    history: History,
    current: int,
    counts: Census,
    reading: Reading | None,
    starts: tuple[float, ...],
    now: float,
    hour_s: float | None = None,
) -> Decision:
    """Decide by one policy, with its own history, from one observation. `hour_s` is that of
    `decide`."""
    start_s = learned_start_s(starts)
    missing = max(0, current - counts.ready - counts.starting - counts.stalled)
    snapshot = Snapshot(
        current=current,
        ready=counts.ready,
        draining=counts.draining,
        late=counts.late + (0 if _has_grown(history, late_after_s(start_s), now) else missing),
        silent=counts.silent,
        signals=reading.signals if reading else None,
        start_s=start_s,
        history=history,
    )
    return decide(snapshot, policy, now, hour_s)


def _has_grown(history: History, within_s: float, now: float) -> bool:
    """Whether the pool has grown lately, so that Kubernetes may still create the pods; a quota may
    keep it from that for ever."""
    return any(each.change > 0 and now - each.at_s < within_s for each in history.events)


def follow_replaced(memory: Memory, current: int, replicas: int, now: float) -> None:
    """Account for a pod that Kubernetes replaced although it was about to leave.

    If somebody deletes a draining pod, or a rollout takes it, Kubernetes creates another one. The
    pool is then larger than decided; this growth does not count against the rate policies.
    """
    if memory.desired is None or memory.replicas is None:
        return
    if current > memory.desired and replicas <= memory.replicas:
        memory.history = memory.history.scaled(now, memory.desired, current, None)
        memory.desired = current


def follow_starts(memory: Memory, pods: Sequence[PodView], now: float) -> list[float]:
    """Return the start times of the pods that began to serve since the last reconcile: seconds
    from decision to readiness. Those that had a trouble on their way teach nothing: the next pod
    will not wait for a mended registry."""
    # A gate is closed before a pod first serves, and while it leaves.
    new = {pod.uid for pod in pods if pod.is_alive and not pod.gate and pod.draining_since is None}
    started = [pod for pod in pods if pod.uid in memory.starting and pod.is_serving]
    there = {pod.uid for pod in pods}
    memory.starting = (memory.starting & there | new) - {pod.uid for pod in started}
    troubled = {pod.uid for pod in pods if pod.troubled and pod.uid in new}
    memory.troubled = memory.troubled & there | troubled
    created = [pod.created for pod in pods]
    found = [
        round(now - decided_at(memory.history, pod.created, created), 1)
        for pod in started
        if pod.uid not in memory.troubled
    ]
    for seconds in found:
        memory.starts = with_start(memory.starts, seconds)
    return found


def follow_shadows(
    pool: WorkerPool,
    memory: Memory,
    current: int,
    counts: Census,
    reading: Reading | None,
    now: float,
) -> None:
    """Let each shadow policy decide, each with its own history."""
    passed_s = min(max(0.0, now - (memory.observed_at or now)), LONGEST_GAP_S)
    memory.observed_at = now
    known, memory.shadows = memory.shadows, {}
    for policy in pool.spec.scaling.shadow_policies:
        shadow = known.get(policy.name)
        history, before = (shadow.history, shadow.result) if shadow else (History(), None)
        decision = decided(policy, history, current, counts, reading, memory.starts, now)
        result = ShadowResult(
            name=policy.name,
            desired=decision.desired,
            reason=decision.reason,
            replica_hours=before.replica_hours + before.desired * passed_s / 3600 if before else 0,
            since=before.since if before else moment(now),
        )
        memory.shadows[policy.name] = Shadow(decision.history, result)


def recorded(
    memory: Memory, decision: Decision, before: int, after: int, reason: str, now: float
) -> None:
    """Record a change of the desired size."""
    record = DecisionRecord(
        time=moment(now),
        from_replicas=before,
        to_replicas=after,
        reason=reason,
        limited_by=decision.limited_by or "",
        pressure=rounded(decision.pressure),
    )
    memory.decisions = (record, *memory.decisions)[:DECISIONS_KEPT]


def rounded(pressure: float | None) -> float | None:
    return None if pressure is None else round(pressure, 3)


def follow_traffic(memory: Memory, pool: WorkerPool, reading: Reading | None, now: float) -> None:
    """Compares the traffic with that which the pool was tuned on."""
    tuned = tuned_on(pool.metadata.annotations)
    if reading is None and tuned is not None:
        return  # a day with a gap begins anew
    more = memory.traffic.more(reading.replicas if reading else ())
    memory.tuning = followed(memory.tuning, tuned, more, moment(now))


def moment(now: float) -> datetime:
    """In whole seconds, like Kubernetes' own timestamps."""
    return datetime.fromtimestamp(int(now), UTC)


def as_json(part: BaseModel) -> dict[str, Any]:
    """JSON for the API server without empty values: some 1.20 servers read "" as null and refuse
    it."""
    filled: dict[str, Any] = _filled(part.model_dump(by_alias=True, mode="json"))
    return filled


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _filled(one) for name, one in value.items() if one not in (None, "")}
    return [_filled(one) for one in value] if isinstance(value, list) else value
