"""The four conditions of a pool's status: what each says, and since when.

`Ready`: requests are answered, or would be, by a pool that sleeps. `ScalingActive`: the load
decides over the size. `ScalingLimited`: something keeps the size from what the load asks for.
`Degraded`: somebody has to do something; its message says what.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pando_operator.controller.observing.pod_troubles import pods_trouble
from pando_operator.kube.errors import KubeError
from pando_operator.kube.resources import Object
from pando_operator.lifecycle.census import Census
from pando_operator.resource.scaling import Mode
from pando_operator.resource.status import MESSAGE_CHARS, Condition, ConditionType
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


def ready(mode: Mode, census: Census, desired: int) -> Verdict:
    if desired == 0 and census.replicas == 0:
        if mode is Mode.AUTO:
            message = "no replica is wanted; a request wakes the pool"
            return Verdict(ConditionType.READY, True, "ScaledToZero", message)
        message = f"spec.replicas is 0, and no request changes that in mode {mode.value}"
        return Verdict(ConditionType.READY, False, "ScaledToZero", message)
    message = f"{census.ready} of {desired} replicas take requests"
    if census.ready:
        reason = "AllReplicasReady" if census.ready >= desired else "SomeReplicasReady"
        return Verdict(ConditionType.READY, True, reason, message)
    return Verdict(ConditionType.READY, False, "NoReplicaReady", message)


def scaling_active(mode: Mode, decision: Decision, *, is_starting: bool) -> Verdict:
    """`is_starting`: Redis answers, and no replica is ready that could tell it anything."""
    kind = ConditionType.SCALING_ACTIVE
    if mode is not Mode.AUTO:
        message = "replicas follow spec.replicas; minReplicas and maxReplicas count in mode Auto"
        return Verdict(kind, False, f"{mode.value}Mode", message)
    if not decision.signals_ok:
        reason = "NoReplicaReady" if is_starting else "SignalsMissing"
        return Verdict(kind, False, reason, decision.problem)
    message = "replicas follow the load, and spec.replicas follows them"
    return Verdict(kind, True, "ValidSignals", message)


_NO_LIMITS = (None, Limit.SIGNALS)


def scaling_limited(mode: Mode, decision: Decision) -> Verdict:
    kind = ConditionType.SCALING_LIMITED
    if mode is Mode.MANUAL:
        return Verdict(kind, False, "NotScaling", "the load is not looked at")
    if decision.limited_by in _NO_LIMITS:
        return Verdict(kind, False, "DesiredWithinRange", "the size is what the load asks for")
    limit = decision.limited_by
    assert limit is not None
    message = f"{decision.wanted} replicas are asked for, {decision.desired} allowed by {limit}"
    return Verdict(kind, True, limit[0].upper() + limit[1:], message)


def degraded(
    deployment: Object | None, pods: Sequence[Object], stalled: Sequence[str], now: float
) -> Verdict:
    """Of a pool that is valid: whether its Deployment gets what it asks for, and its pods run;
    `stalled` are those of which the engine stands still."""
    told = _deployment_trouble(deployment, "ReplicaFailure", "True")
    if told is None and (found := pods_trouble(pods, now)) is not None:
        told = trouble(found.reason, found.message)
    if told is None and stalled:
        why = (
            "its engine stands still, so it takes no requests; if that lasts, its watchdog ends it"
        )
        told = trouble(
            "EngineStalled", f"pod {', pod '.join(stalled)}: {why}, with stacks in its log"
        )
    told = told or _deployment_trouble(deployment, "Progressing", "False")
    return told or Verdict(ConditionType.DEGRADED, False, "AsExpected")


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
    """In their order; one whose status is as before keeps its time. Others of `before`, about
    which nothing is said now, stay."""
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
