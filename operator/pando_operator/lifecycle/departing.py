"""How a replica leaves, how a drain is undone, and what happens to a deleted pod.

`plan` explains the order of the steps.
"""

from pando_fleet.records.marks import MarkKind
from pando_operator.lifecycle.actions import Action, Annotate, ClearMark, SetGate, SetMark
from pando_operator.lifecycle.joining import open_gate
from pando_operator.lifecycle.pods import (
    DELETION_COST,
    DRAIN,
    HAND_OFF,
    PodView,
    Standing,
    time_text,
)
from pando_operator.lifecycle.pool_state import DRAIN_MARK_S, HAND_OFF_MARK_S, PoolState

SETTLE_S = 2.0
"""Replicas report twice a second, so after this time their report is newer than the drain mark."""

COST = -1_000_000
"""Deletion cost of a drained pod; others have 0."""


def drain(pod: PodView, state: PoolState) -> list[Action]:
    """The next steps of a pod that leaves; none while it has to wait, or once it has drained."""
    mark = state.open_mark(MarkKind.DRAIN, pod)
    if mark is None or pod.draining_since is None:
        # If only the mark is gone, requests may have arrived since, so the drain starts again.
        return [_drain_mark(pod), Annotate(pod.name, pod.uid, ((DRAIN, time_text(state.now)),))]
    renewed = _renewed(pod, state)
    if state.open_mark(MarkKind.WARM, pod):
        return [*renewed, ClearMark(MarkKind.WARM, pod.name)]
    if _can_hand_off(pod) and not pod.handed_off and _has_heirs(pod, state):
        done = Annotate(pod.name, pod.uid, ((HAND_OFF, time_text(state.now)),))
        return [*renewed, _hand_off_mark(pod, state), done]
    if not _has_ended(pod, state):
        return renewed
    if pod.gate and not pod.is_lost:
        closed = SetGate(pod.name, pod.uid, False, "Draining", "the replica leaves its pool")
        return [*renewed, closed]
    if pod.standing is not Standing.READY and pod.deletion_cost != COST:
        return [*renewed, Annotate(pod.name, pod.uid, ((DELETION_COST, str(COST)),))]
    return renewed


def may_go(pod: PodView, state: PoolState) -> bool:
    """Whether the only step left for a leaving pod is to lower `replicas`."""
    return (
        pod.draining_since is not None
        and state.open_mark(MarkKind.DRAIN, pod) is not None
        and _has_ended(pod, state)
        and (not pod.gate or pod.is_lost)
        and pod.standing is not Standing.READY
        and pod.deletion_cost == COST
    )


def give_back(pod: PodView, state: PoolState) -> list[Action]:
    """Undo a drain, its annotation last; no actions for a pod that does not drain."""
    marks = [
        ClearMark(kind, pod.name)
        for kind in (MarkKind.HAND_OFF, MarkKind.DRAIN)
        if state.open_mark(kind, pod)
    ]
    remembered = {
        DRAIN: pod.draining_since is not None,
        HAND_OFF: pod.handed_off,
        DELETION_COST: pod.deletion_cost is not None,
    }
    actions: list[Action] = list(marks)
    if pod.draining_since is not None and pod.containers_ready and not pod.gate:
        actions.append(open_gate(pod))
    if any(remembered.values()):
        forgotten = tuple((name, None) for name, is_there in remembered.items() if is_there)
        actions.append(Annotate(pod.name, pod.uid, forgotten))
    return actions


def terminate(pod: PodView, state: PoolState) -> list[Action]:
    """Steps for a pod that was deleted or that a rollout replaces.

    It finishes its requests by itself and stays while its hand-off is open. Its drain mark shows
    the worker that no further hand-off will follow.
    """
    actions: list[Action] = []
    if state.open_mark(MarkKind.WARM, pod):
        actions.append(ClearMark(MarkKind.WARM, pod.name))
    has_mark = state.mark(MarkKind.HAND_OFF, pod) is not None
    if pod.gate and not pod.handed_off and not has_mark and _has_heirs(pod, state):
        actions.append(_hand_off_mark(pod, state))
    if state.open_mark(MarkKind.DRAIN, pod) is None:
        return [*actions, _drain_mark(pod)]
    return actions + _renewed(pod, state)


def _has_ended(pod: PodView, state: PoolState) -> bool:
    """Whether the pod has no request left and has handed off its prefixes, or its time is up."""
    age_s = state.now - (pod.draining_since or state.now)
    if age_s >= state.scaling.drain.timeout_seconds:
        return True
    if state.open_mark(MarkKind.HAND_OFF, pod) or pod.requests:
        return False
    # A worker that is not ready has no requests; a ready one has to report that it has none.
    is_dead = not pod.containers_ready or pod.is_lost
    return is_dead or (pod.requests == 0 and age_s >= SETTLE_S)


def _can_hand_off(pod: PodView) -> bool:
    return pod.gate and pod.containers_ready and not pod.is_lost


def _has_heirs(pod: PodView, state: PoolState) -> bool:
    has_something = state.scaling.drain.hand_off_tokens > 0 and not pod.stalled
    return has_something and state.others_serve(pod)


def _renewed(pod: PodView, state: PoolState) -> list[Action]:
    mark = state.open_mark(MarkKind.DRAIN, pod)
    is_old = mark is not None and mark.left_ms < DRAIN_MARK_S * 500
    return [_drain_mark(pod)] if is_old else []


def _drain_mark(pod: PodView) -> SetMark:
    return SetMark(MarkKind.DRAIN, pod.name, DRAIN_MARK_S * 1000, 0)


def _hand_off_mark(pod: PodView, state: PoolState) -> SetMark:
    lasts_s = min(HAND_OFF_MARK_S, state.scaling.drain.timeout_seconds)
    tokens = state.scaling.drain.hand_off_tokens
    return SetMark(MarkKind.HAND_OFF, pod.name, int(lasts_s * 1000), tokens)
