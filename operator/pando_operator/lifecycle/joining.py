"""How a replica joins: routers warm it while no request needs it, then its gate opens.

The gate waits for adapters, too. Requests for others may arrive meanwhile: routers send those for
an adapter only to replicas that have it.
"""

from collections.abc import Sequence

from pando_fleet.records.marks import MarkKind
from pando_operator.lifecycle.actions import Action, ClearMark, SetGate, SetMark
from pando_operator.lifecycle.pods import PodView
from pando_operator.lifecycle.pool_state import WARM_MARK_S, PoolState
from pando_operator.resource.scaling import Warm


def join(pod: PodView, state: PoolState) -> list[Action]:
    """The next steps of a pod that should serve; none for one that does."""
    mark = state.open_mark(MarkKind.WARM, pod)
    is_wanted = state.scaling.warm.tokens > 0 and state.others_serve(pod)
    if not pod.gate and not pod.containers_ready:
        return _before_ready(pod, state, is_wanted=is_wanted)
    if mark and not pod.gate and is_wanted and not _is_late(pod, state.now, state.scaling.warm):
        return []
    actions: list[Action] = [ClearMark(MarkKind.WARM, pod.name)] if mark else []
    return actions if pod.gate or pod.lacks_adapters else [*actions, open_gate(pod)]


def _before_ready(pod: PodView, state: PoolState, *, is_wanted: bool) -> list[Action]:
    """Mark the pod for warming before its first request, unless no other replica serves."""
    mark = state.mark(MarkKind.WARM, pod)
    if not is_wanted:
        return [ClearMark(MarkKind.WARM, pod.name)] if mark and not mark.is_over else []
    if mark is None or mark.left_ms <= 0:
        tokens = state.scaling.warm.tokens
        return [SetMark(MarkKind.WARM, pod.name, WARM_MARK_S * 1000, tokens)]
    return []


def open_late(pods: Sequence[PodView], now: float, warm: Warm) -> list[Action]:
    """Open gates while Redis is unreachable: nothing can warm a new pod then, so its gate opens
    when the time for warming is over."""
    return [
        open_gate(pod)
        for pod in pods
        if pod.is_alive
        and pod.containers_ready
        and not pod.gate
        and pod.draining_since is None
        and _is_late(pod, now, warm)
    ]


def open_gate(pod: PodView) -> SetGate:
    return SetGate(pod.name, pod.uid, True, "Serving", "the replica may take requests")


def _is_late(pod: PodView, now: float, warm: Warm) -> bool:
    return now - (pod.ready_since or pod.created) >= warm.timeout_seconds
