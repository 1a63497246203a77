"""Which pods leave: those that serve nobody, then those on their way, then the least worth.

While a Deployment rolls, those that it replaces go before those that it makes.
"""

from collections.abc import Mapping, Sequence

from pando_fleet.records.marks import MarkKind
from pando_operator.lifecycle.pods import PodView
from pando_operator.lifecycle.rollout import Rollout, is_rolling, surplus
from pando_operator.lifecycle.world import World

_Rank = tuple[float, ...]


def leaving(world: World, target: int, replicas: int, worths: Mapping[str, float]) -> list[PodView]:
    """The pods that are too many, the first to go first."""
    count = _too_many(world.alive, target, replicas)
    if not count:
        return []
    if not world.is_rolling:
        return sorted(world.alive, key=lambda pod: _rank(pod, world, worths))[:count]
    rollout = Rollout(world.alive)
    ranked = sorted(world.alive, key=lambda pod: (*rollout.order(pod), *_rank(pod, world, worths)))
    return ranked[:count]


def is_open(pods: Sequence[PodView], target: int, replicas: int) -> bool:
    """Whether one that is not on its way yet is to be chosen, so that worths matter."""
    alive = [pod for pod in pods if pod.is_alive]
    begun = sum(pod.draining_since is not None for pod in alive)
    return _too_many(alive, target, replicas) > begun


def _too_many(alive: Sequence[PodView], target: int, replicas: int) -> int:
    """The surge of a Deployment that rolls is not; what Kubernetes is about to delete, is."""
    if not is_rolling(alive):
        return max(0, len(alive) - target)
    return max(0, min(len(alive), replicas) - target) + surplus(alive, replicas)


def _rank(pod: PodView, world: World, worths: Mapping[str, float]) -> _Rank:
    is_draining = pod.draining_since is not None
    youngest = -pod.created
    if pod.is_useless:
        return 0, not is_draining, pod.standing, youngest
    if is_draining:
        return 2, pod.standing, worths.get(pod.name, 0.0), youngest
    if not pod.gate:
        return 1, 0, 0, youngest  # still joining
    if world.open_mark(MarkKind.DRAIN, pod):
        return 3, 0, worths.get(pod.name, 0.0), youngest  # begun, and not yet written down
    return 4, 0, worths.get(pod.name, 0.0), youngest
