"""From what is seen of a pool's pods to what is to be done now, so that no stream is cut.

A replica that leaves takes these steps, and each is seen to be done before the next:

1. drain mark in Redis: routers place nothing there from that moment on
2. annotation on the pod: the memory of the drain, from which the mark is renewed
3. hand-off mark, once: routers compute elsewhere the hottest prefixes that only it holds
4. wait until no request is left there and the hand-off is over, or the drain's time is
5. gate closed, and Kubernetes sees the pod as not ready: such pods go first, on any version
6. deletion cost, once, which decides among those that are not ready
7. `replicas` is lowered by as many pods as Kubernetes will certainly choose from these

Until the pod is gone it may be needed again; then it is given back, which is the fastest capacity
there is. While a Deployment rolls, those that it replaces leave first, in the same steps, and
`replicas` is lowered by one at a time. A replica that joins is marked to be warmed as soon as it is
seen, and its gate opens when that is over. Who leaves is decided anew in each plan, those on their
way before others, so an operator may stop after any step.
"""

from collections.abc import Mapping, Sequence

from pando_fleet.records.marks import Mark
from pando_operator.lifecycle.actions import Action, SetReplicas
from pando_operator.lifecycle.choice import leaving
from pando_operator.lifecycle.departing import drain, give_back, may_go, terminate
from pando_operator.lifecycle.joining import join, open_late
from pando_operator.lifecycle.pods import PodView, Standing
from pando_operator.lifecycle.rollout import SURGE, Rollout
from pando_operator.lifecycle.world import World
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
    """What is to be done now, in this order.

    `marks` are all of the pool in Redis, read before the pods' `requests` are, or None while Redis
    is away: then nothing leaves. `replicas` is the Deployment's as last seen or set, `target` what
    it is to be, `worths` those of the caches by replica (0 for one that is not in it), `now` in
    seconds since 1970. `pods` may be as a watch showed them, not later than the time that a new
    pod takes to be ready, with the answers of the operator's own writes put in.
    """
    actions: list[Action] = [SetReplicas(target)] if replicas < target else []
    if marks is None:
        return [*actions, *open_late(pods, now, scaling.warm)]
    world = World(pods, marks, now, scaling)
    go = leaving(world, target, replicas, worths)
    for pod in world.alive:
        if pod not in go:
            actions += give_back(pod, world) or join(pod, world)
    for pod in pods:
        if pod.deleting and not pod.finished:
            actions += terminate(pod, world)
    for pod in go:
        actions += drain(pod, world)
    lower = _lower_by_one if world.is_rolling else _lower
    return actions + lower(world, go, target, replicas)


def _lower(world: World, go: Sequence[PodView], target: int, replicas: int) -> list[SetReplicas]:
    """Lowers `replicas` by those that have ended, as far as Kubernetes cannot choose another.

    It chooses by standing first. Pods that serve nobody need no protection: one of them may well
    go in place of another.
    """
    ended = [pod for pod in go if may_go(pod, world)]
    others = [pod for pod in world.alive if pod not in ended and not pod.is_useless]
    safe_below = min((pod.standing for pod in others), default=Standing.READY + 1)
    gone = sum(pod.standing < safe_below for pod in ended)
    lowered = max(target, len(world.alive) - gone)
    return [SetReplicas(lowered)] if lowered < replicas else []


def _lower_by_one(
    world: World, go: Sequence[PodView], target: int, replicas: int
) -> list[SetReplicas]:
    """As `_lower` where Kubernetes chooses a ReplicaSet first, which is foreseen of one pod only.

    The one that it takes may be a new one that serves nobody yet: it takes one that has ended then
    to go on with its rollout.
    """
    ended = [pod for pod in go if may_go(pod, world)]
    if not ended or replicas <= target or len(world.alive) > replicas + SURGE:
        return []
    taken = Rollout(world.alive).next_taken() if replicas > 1 else world.alive
    if all(pod in ended or pod.is_useless for pod in taken):
        return [SetReplicas(replicas - 1)]
    return []
