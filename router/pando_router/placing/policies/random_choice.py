"""A replica drawn at random, all with equal probability."""

import random
from collections.abc import Sequence

from pando_router.fleet_view.view import Member
from pando_router.placing.route import Prompt


class RandomChoice:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def pick(self, prompt: Prompt, members: Sequence[Member]) -> Member:
        return self._rng.choice(members)
