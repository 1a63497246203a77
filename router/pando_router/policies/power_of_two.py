"""The less loaded of two replicas drawn at random.

Nearly as even as comparing all (Mitzenmacher, 2001), and routers with the same outdated loads do
not all choose the same replica.
"""

import random
from collections.abc import Sequence

from pando_router.policies.inputs import ReplicaViewT, RequestView
from pando_router.policies.loads import Loads
from pando_router.policies.policy import PolicyKind


class PowerOfTwo:
    def __init__(self, loads: Loads, rng: random.Random) -> None:
        self._loads = loads
        self._rng = rng

    def pick(self, asked: RequestView, replicas: Sequence[ReplicaViewT]) -> ReplicaViewT:
        if len(replicas) == 1:
            return replicas[0]
        return min(self._rng.sample(replicas, 2), key=self._loads)


POWER_OF_TWO = PolicyKind(
    name="power_of_two", help="the less loaded of two drawn at random", make=PowerOfTwo
)
