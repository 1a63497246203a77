"""The replica with the fewest requests; replicas with equally many take turns."""

from collections.abc import Sequence

from pando_router.policies.inputs import ReplicaViewT, RequestView
from pando_router.policies.loads import Loads
from pando_router.policies.policy import PolicyKind


class LeastLoaded:
    def __init__(self, loads: Loads) -> None:
        self._loads = loads
        self._turn = 0

    def pick(self, asked: RequestView, replicas: Sequence[ReplicaViewT]) -> ReplicaViewT:
        self._turn += 1
        start = self._turn % len(replicas)
        return min((*replicas[start:], *replicas[:start]), key=self._loads)


LEAST_LOADED = PolicyKind(
    name="least_loaded",
    help="the replica with the fewest requests; equals take turns",
    make=lambda loads, rng: LeastLoaded(loads),
)
