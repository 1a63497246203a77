"""Which pods leave: those that serve nobody, then those on their way, then the least worth."""

from collections.abc import Mapping

from pando_fleet.marks import MarkKind
from pando_operator.lifecycle.pods import PodView
from pando_operator.lifecycle.world import World

_Rank = tuple[float, ...]


def leaving(world: World, target: int, replicas: int, worths: Mapping[str, float]) -> list[PodView]:
    """The pods that are too many, the first to go first.

    While a Deployment rolls, its surge is no pod too many, and nobody new is sent away.
    """
    if not world.is_rolling:
        ranked = sorted(world.alive, key=lambda pod: _rank(pod, world, worths))
        return ranked[: max(0, len(ranked) - target)]
    begun = [pod for pod in world.alive if pod.draining_since is not None]
    begun.sort(key=lambda pod: _rank(pod, world, worths))
    return begun[: max(0, min(len(world.alive), replicas) - target)]


def _rank(pod: PodView, world: World, worths: Mapping[str, float]) -> _Rank:
    is_draining = pod.draining_since is not None
    youngest = -pod.created
    if not pod.containers_ready:
        return 0, not is_draining, pod.standing, youngest
    if is_draining:
        return 2, pod.standing, worths.get(pod.name, 0.0), youngest
    if not pod.gate:
        return 1, 0, 0, youngest  # still joining
    if world.open_mark(MarkKind.DRAIN, pod):
        return 3, 0, worths.get(pod.name, 0.0), youngest  # begun, and not yet written down
    return 4, 0, worths.get(pod.name, 0.0), youngest
