"""Plans the next actions on a pool's pods so that no stream is cut.

A replica leaves in these steps; each has to be visible before the next one starts:

1. drain mark in Redis: from now on routers place nothing there
2. annotation on the pod: it records the drain, and the mark is renewed from it
3. hand-off mark, once: routers compute its hottest prefixes that no other replica holds elsewhere
4. wait until no request is left and the hand-off is over, or until the drain times out
5. gate closed: Kubernetes sees the pod as not ready, and every version deletes such pods first
6. deletion cost, once: it decides among the pods that are not ready
7. `replicas` lowered by as many pods as Kubernetes is certain to choose from these

If the pod is needed again before it is deleted, its drain is undone: no other capacity is available
as fast. During a rollout the replaced pods leave first, in the same steps, and `replicas` falls by
one at a time. A joining replica is marked for warming as soon as it is seen; its gate opens when
that is over. Each plan chooses the leaving pods again and prefers those that drain already, so an
operator may stop after any step.
"""

from collections.abc import Mapping, Sequence

from pando_fleet.records.marks import Mark
from pando_operator.lifecycle.actions import Action, SetReplicas
from pando_operator.lifecycle.choice import leaving
from pando_operator.lifecycle.departing import drain, give_back, may_go, terminate
from pando_operator.lifecycle.joining import join, open_late
from pando_operator.lifecycle.pods import PodView, Standing
from pando_operator.lifecycle.pool_state import PoolState
from pando_operator.lifecycle.rollout import SURGE, Rollout
from pando_operator.resource.scaling import Scaling


def plan(
    pods: Sequence[PodView],
    marks: Sequence[Mark] | None,
    *,
    target: int,
    replicas: int,
    worths: Mapping[str, float],
    now: float,
    scaling: Scaling,
) -> list[Action]:
    """The actions that are due now, in order.

    Args:
        pods: as a watch shows them, with the results of the operator's own writes. They may be
            older than now by less than a new pod takes to become ready.
        marks: all of the pool's marks in Redis, read before the pods' `requests`. None while Redis
            is unreachable: then no pod leaves.
        target: the size to reach.
        replicas: the Deployment's `replicas`, as last seen or set.
        worths: the worth of each replica's cache; 0 for a replica that is missing.
        now: seconds since 1970.
    """
    actions: list[Action] = [SetReplicas(target)] if replicas < target else []
    if marks is None:
        return [*actions, *open_late(pods, now, scaling.warm)]
    state = PoolState(pods, marks, now, scaling)
    go = leaving(state, target, replicas, worths)
    for pod in state.alive:
        if pod not in go:
            actions += give_back(pod, state) or join(pod, state)
    for pod in pods:
        if pod.deleting and not pod.finished and not pod.is_ghost(now):
            actions += terminate(pod, state)
    for pod in go:
        actions += drain(pod, state)
    lower = _lower_by_one if state.is_rolling else _lower
    return actions + lower(state, go, target, replicas)


def _lower(
    state: PoolState, go: Sequence[PodView], target: int, replicas: int
) -> list[SetReplicas]:
    """Lower `replicas` by the drained pods, as far as Kubernetes cannot delete others instead.

    Kubernetes ranks by standing first. Useless pods need no protection: either of two may go.
    """
    ended = [pod for pod in go if may_go(pod, state)]
    others = [pod for pod in state.alive if pod not in ended and not pod.is_useless]
    safe_below = min((pod.standing for pod in others), default=Standing.READY + 1)
    gone = sum(pod.standing < safe_below for pod in ended)
    lowered = max(target, len(state.alive) - gone)
    return [SetReplicas(lowered)] if lowered < replicas else []


def _lower_by_one(
    state: PoolState, go: Sequence[PodView], target: int, replicas: int
) -> list[SetReplicas]:
    """Like `_lower`, during a rollout: Kubernetes then chooses a ReplicaSet first, which can be
    foreseen for one pod only.

    It may delete a new pod that serves nothing yet; to continue the rollout, it then deletes a
    drained one.
    """
    ended = [pod for pod in go if may_go(pod, state)]
    if not ended or replicas <= target or len(state.alive) > replicas + SURGE:
        return []
    taken = Rollout(state.alive).next_taken() if replicas > 1 else state.alive
    if all(pod in ended or pod.is_useless for pod in taken):
        return [SetReplicas(replicas - 1)]
    return []
