"""The replica with the fewest requests; replicas with equally many take turns."""

from collections.abc import Sequence

from pando_router.fleet_view.view import Member
from pando_router.placing.policies.loads import Loads
from pando_router.placing.route import Prompt


class LeastLoaded:
    def __init__(self, loads: Loads) -> None:
        self._loads = loads
        self._turn = 0

    def pick(self, prompt: Prompt, members: Sequence[Member]) -> Member:
        self._turn += 1
        start = self._turn % len(members)
        return min((*members[start:], *members[:start]), key=self._loads)
