"""Chooses the pods that leave: useless ones, then ones that drain already, then ones whose nodes
are being emptied, then the least worth.

A cache's worth comes from the fleet's `placement/worth.py` and its script
`lua/placement/tree_worth.lua`. During a rollout, the pods that it replaces leave before those that
it creates.
"""

from collections.abc import Mapping, Sequence

from pando_fleet.records.marks import MarkKind
from pando_operator.lifecycle.pods import PodView
from pando_operator.lifecycle.pool_state import PoolState
from pando_operator.lifecycle.rollout import Rollout, is_rolling, surplus

_Rank = tuple[float, ...]


def leaving(
    state: PoolState, target: int, replicas: int, worths: Mapping[str, float]
) -> list[PodView]:
    """The pods above the target, in the order in which they leave."""
    count = _too_many(state.alive, target, replicas)
    if not count:
        return []
    if not state.is_rolling:
        return sorted(state.alive, key=lambda pod: _rank(pod, state, worths))[:count]
    rollout = Rollout(state.alive)
    ranked = sorted(state.alive, key=lambda pod: (*rollout.order(pod), *_rank(pod, state, worths)))
    return ranked[:count]


def is_open(pods: Sequence[PodView], target: int, replicas: int) -> bool:
    """Whether a pod that does not drain yet has to be chosen, so that the worths are needed."""
    alive = [pod for pod in pods if pod.is_alive]
    begun = sum(pod.draining_since is not None for pod in alive)
    return _too_many(alive, target, replicas) > begun


def _too_many(alive: Sequence[PodView], target: int, replicas: int) -> int:
    """How many pods must leave: not the surge of a rollout, but those that Kubernetes will delete
    soon."""
    if not is_rolling(alive):
        return max(0, len(alive) - target)
    return max(0, min(len(alive), replicas) - target) + surplus(alive, replicas)


def _rank(pod: PodView, state: PoolState, worths: Mapping[str, float]) -> _Rank:
    is_draining = pod.draining_since is not None
    youngest = -pod.created
    if pod.is_useless:
        return 0, not is_draining, pod.standing, youngest
    if is_draining:
        return 2, pod.standing, worths.get(pod.name, 0.0), youngest
    if not pod.gate:
        return 1, 0, 0, youngest  # still joining
    if state.open_mark(MarkKind.DRAIN, pod):
        return 3, 0, worths.get(pod.name, 0.0), youngest  # draining, but not annotated yet
    return 4, not pod.cordoned, pod.heard is not False, worths.get(pod.name, 0.0), youngest
