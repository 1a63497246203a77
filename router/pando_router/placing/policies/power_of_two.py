"""The less loaded of two replicas drawn at random.

Nearly as even as comparing all (Mitzenmacher, 2001), and routers with the same outdated loads do
not all choose the same replica.
"""

import random
from collections.abc import Sequence

from pando_router.fleet_view.view import Member
from pando_router.placing.policies.loads import Loads
from pando_router.placing.route import Prompt


class PowerOfTwo:
    def __init__(self, loads: Loads, rng: random.Random) -> None:
        self._loads = loads
        self._rng = rng

    def pick(self, prompt: Prompt, members: Sequence[Member]) -> Member:
        if len(members) == 1:
            return members[0]
        return min(self._rng.sample(members, 2), key=self._loads)
