"""The replicas in turn."""

from collections.abc import Sequence

from pando_router.policies.inputs import ReplicaViewT, RequestView
from pando_router.policies.policy import PolicyKind


class RoundRobin:
    def __init__(self) -> None:
        self._turn = 0

    def pick(self, asked: RequestView, replicas: Sequence[ReplicaViewT]) -> ReplicaViewT:
        self._turn += 1
        return replicas[(self._turn - 1) % len(replicas)]


ROUND_ROBIN = PolicyKind(
    name="round_robin", help="one replica after the other", make=lambda loads, rng: RoundRobin()
)
