"""The conditions of a pool's status.

`Available`: the pool answers requests, or wakes up to answer them. `Ready`: it has become what its
spec says, so a change of the spec can be awaited. `Progressing`: it is on its way there.
`ScalingActive`: the load decides the size. `ScalingLimited`: a limit keeps the size from what the
load needs. `AdaptersReady`: all replicas have all adapters. `TunedForOtherTraffic`: for a week the
traffic has been another one than that which the scaling was tuned on. `Degraded`: a person has to
act, as its message explains. `Stalled`: so much so that the spec cannot be reached.

Flux reads `Ready` and `Stalled` of any kind, with `observedGeneration`, by the rules of kstatus
(https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pando_operator.controller.observing.pod_troubles import pods_trouble
from pando_operator.controller.traffic import has_other_traffic
from pando_operator.kube.errors import KubeError
from pando_operator.kube.resources import Key, Object
from pando_operator.lifecycle.census import Census
from pando_operator.resource.adapters import AdapterStatus
from pando_operator.resource.scaling import Mode
from pando_operator.resource.status import MESSAGE_CHARS, Condition, ConditionType, TuningStatus
from pando_operator.scaling import Decision, Limit


@dataclass(frozen=True, slots=True)
class Verdict:
    type: ConditionType
    holds: bool | None  # None: unknown
    reason: str  # one CamelCase word
    message: str = ""

    @property
    def status(self) -> str:
        return "Unknown" if self.holds is None else str(self.holds)


def available(mode: Mode, census: Census, desired: int) -> Verdict:
    kind = ConditionType.AVAILABLE
    if desired == 0 and census.replicas == 0:
        if mode is Mode.AUTO:
            message = "no replica is wanted; a request wakes the pool"
            return Verdict(kind, True, "ScaledToZero", message)
        message = f"spec.replicas is 0, and no request changes that in mode {mode.value}"
        return Verdict(kind, False, "ScaledToZero", message)
    message = f"{census.ready} of {desired} replicas take requests"
    if census.ready:
        reason = "AllReplicasReady" if census.ready >= desired else "SomeReplicasReady"
        return Verdict(kind, True, reason, message)
    return Verdict(kind, False, "NoReplicaReady", message)


def rollout(census: Census, desired: int, *, is_paused: bool) -> tuple[Verdict, Verdict]:
    """`Ready` and `Progressing` of a pool whose spec was applied."""
    message = f"{census.updated} of {desired} replicas are updated and take requests"
    is_ready, is_moving = False, True
    if census.outdated:
        message += f", {census.outdated} are still to be replaced"
        reason, is_moving = "Paused" if is_paused else "RollingOut", not is_paused
    elif census.updated < desired:
        reason = "SomeReplicasReady" if census.updated else "NoReplicaReady"
    else:
        is_ready, is_moving = True, census.draining > 0
        reason = "AllReplicasReady" if desired else "ScaledToZero"
    return (
        Verdict(ConditionType.READY, is_ready, reason, message),
        Verdict(ConditionType.PROGRESSING, is_moving, reason, message),
    )


def waiting(pool: Key) -> Verdict:
    """`Progressing` of a pool that another one's rollout keeps from its own."""
    message = f"waits for pool {pool}: the operator has changed, and one pool rolls at a time"
    return Verdict(ConditionType.PROGRESSING, True, "WaitsForPool", message)


def unapplied(reason: str) -> tuple[Verdict, Verdict]:
    """The same two of a pool whose spec could not be applied."""
    message = "the spec was not applied; see the condition Degraded"
    return (
        Verdict(ConditionType.READY, False, reason, message),
        Verdict(ConditionType.PROGRESSING, False, reason, message),
    )


def tuned_for_other_traffic(tuning: TuningStatus | None, now: datetime) -> Verdict:
    kind = ConditionType.TUNED_FOR_OTHER_TRAFFIC
    if tuning is None:
        return Verdict(kind, False, "NotTuned")
    tuned = f"{tuning.trace}, {tuning.date}"
    if not has_other_traffic(tuning, now):
        return Verdict(kind, False, "AsExpected", f"tuned on {tuned}")
    assert tuning.other_since is not None
    message = (
        f"since {tuning.other_since:%Y-%m-%d} the traffic has been another one than that of"
        f" {tuned}: {tuning.other}. Record it and run pando tune again"
    )
    return Verdict(kind, True, "OtherTraffic", message)


_STALLS = ("InvalidSpec", "NameTaken", "Forbidden", "Invalid", "ProgressDeadlineExceeded")
"""Reasons of `Degraded` for which waiting alone does not help."""


def stalled(degraded: Verdict) -> Verdict:
    if degraded.holds and degraded.reason in _STALLS:
        return Verdict(ConditionType.STALLED, True, degraded.reason, degraded.message)
    return Verdict(ConditionType.STALLED, False, "AsExpected")


def scaling_active(mode: Mode, decision: Decision, *, is_starting: bool) -> Verdict:
    """`is_starting`: Redis answers, but no replica is ready yet to report to it."""
    kind = ConditionType.SCALING_ACTIVE
    if mode is not Mode.AUTO:
        message = "replicas follow spec.replicas; minReplicas and maxReplicas apply in mode Auto"
        return Verdict(kind, False, f"{mode.value}Mode", message)
    if not decision.signals_ok:
        reason = "NoReplicaReady" if is_starting else "SignalsMissing"
        return Verdict(kind, False, reason, decision.problem)
    message = "replicas follow the load, and spec.replicas follows them"
    return Verdict(kind, True, "ValidSignals", message)


_NO_LIMITS = (None, Limit.SIGNALS)


def scaling_limited(mode: Mode, decision: Decision, gpus: str = "") -> Verdict:
    """`gpus`: why the pool gets fewer of them than it wants, or ""."""
    kind = ConditionType.SCALING_LIMITED
    if gpus:
        return Verdict(kind, True, "Gpus", gpus)
    if mode is Mode.MANUAL:
        return Verdict(kind, False, "NotScaling", "mode Manual ignores the load")
    if decision.limited_by in _NO_LIMITS:
        return Verdict(kind, False, "DesiredWithinRange", "the size is what the load needs")
    limit = decision.limited_by
    assert limit is not None
    message = f"the load needs {decision.wanted} replicas, {limit} allows {decision.desired}"
    return Verdict(kind, True, limit[0].upper() + limit[1:], message)


def adapters_ready(rows: Sequence[AdapterStatus]) -> Verdict:
    """`rows`: each adapter's state, removed ones included."""
    kind = ConditionType.ADAPTERS_READY
    if not rows:
        return Verdict(kind, True, "NoAdapters", "the spec has no adapters")
    if failing := [row for row in rows if row.failing]:
        more = f" (and {len(failing) - 1} more)" if len(failing) > 1 else ""
        message = f"{failing[0].name}: {failing[0].state}{more}"
        return Verdict(kind, False, "AdapterFailing", message)
    if not any(row.replicas for row in rows):
        return Verdict(kind, None, "NoReplicaReady", "no replica is there that could load them")
    late = [row.name for row in rows if row.removing or not row.is_everywhere]
    if late:
        message = f"{len(late)} adapters are being loaded or removed: {', '.join(late)}"
        return Verdict(kind, False, "InProgress", message)
    return Verdict(kind, True, "AllAdaptersReady", "all replicas have all adapters")


def degraded(
    deployment: Object | None,
    pods: Sequence[Object],
    engines: Sequence[str],
    silent: Sequence[str],
    now: float,
) -> Verdict:
    """Whether a valid pool's Deployment fails to create its pods, or a pod does not run.

    Args:
        engines: names of the pods whose engines have stalled.
        silent: names of the ready pods that send no heartbeats.
    """
    verdict = _deployment_trouble(deployment, "ReplicaFailure", "True")
    if verdict is None and (found := pods_trouble(pods, now)) is not None:
        verdict = trouble(found.reason, found.message)
    if verdict is None and engines:
        why = "its engine has stalled, so it takes no requests; if that lasts, its watchdog ends it"
        verdict = trouble(
            "EngineStalled", f"pod {', pod '.join(engines)}: {why} and logs its stacks"
        )
    if verdict is None and silent:
        why = "it is ready and sends no heartbeats, so routers send it nothing and it counts as"
        names = ", pod ".join(silent)
        verdict = trouble("ReplicaSilent", f"pod {names}: {why} full; look at its way to Redis")
    verdict = verdict or _deployment_trouble(deployment, "Progressing", "False")
    return verdict or Verdict(ConditionType.DEGRADED, False, "AsExpected")


def _deployment_trouble(deployment: Object | None, kind: str, bad: str) -> Verdict | None:
    conditions = (deployment or {}).get("status", {}).get("conditions") or ()
    for one in conditions:
        if one["type"] == kind and one["status"] == bad:
            return trouble(one.get("reason") or kind, one.get("message", ""))
    return None


def trouble(reason: str, message: str) -> Verdict:
    return Verdict(ConditionType.DEGRADED, True, reason, message)


def refused(error: KubeError) -> Verdict:
    return trouble(type(error).__name__, str(error))


def conditions(
    before: Sequence[Condition], verdicts: Iterable[Verdict], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """The conditions for the status, those of `before` without a new verdict included. A condition
    whose status did not change keeps its transition time."""
    old = {condition.type: condition for condition in before}
    new = {}
    for verdict in verdicts:
        was = old.get(verdict.type)
        new[verdict.type] = Condition(
            type=verdict.type,
            status=verdict.status,  # type: ignore[arg-type]  # one of the three
            observed_generation=generation,
            last_transition_time=(
                was.last_transition_time if was and was.status == verdict.status else now
            ),
            reason=verdict.reason,
            message=verdict.message[:MESSAGE_CHARS],
        )
    return tuple((old | new).values())
