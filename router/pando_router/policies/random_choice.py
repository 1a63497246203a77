"""A replica drawn at random, all with equal probability."""

import random
from collections.abc import Sequence

from pando_router.policies.inputs import ReplicaViewT, RequestView
from pando_router.policies.policy import PolicyKind


class RandomChoice:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def pick(self, asked: RequestView, replicas: Sequence[ReplicaViewT]) -> ReplicaViewT:
        return self._rng.choice(replicas)


RANDOM = PolicyKind(
    name="random", help="any, drawn at random", make=lambda loads, rng: RandomChoice(rng)
)
