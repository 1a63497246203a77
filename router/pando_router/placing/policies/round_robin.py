"""The replicas in turn."""

from collections.abc import Sequence

from pando_router.fleet_view.view import Member
from pando_router.placing.route import Prompt


class RoundRobin:
    def __init__(self) -> None:
        self._turn = 0

    def pick(self, prompt: Prompt, members: Sequence[Member]) -> Member:
        self._turn += 1
        return members[(self._turn - 1) % len(members)]
