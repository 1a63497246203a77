"""`Polled`: what engines report, polled regularly."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pando_fleet.registry.replica import Heartbeat
from pando_sim.fleet.routing.interfaces import Member

if TYPE_CHECKING:
    from pando_sim.fleet.routing.context import Context


class Polled:
    """Polls when it is asked and its last poll is `every_s` old or older.

    The numbers of a router that polls at fixed times are up to `every_s` old. So are these, but
    less often: if requests are rare, each finds fresh numbers.
    """

    def __init__(self, context: "Context", every_s: float) -> None:
        self._context = context
        self._every_s = every_s
        self._looked_s = -every_s
        self._seen: dict[str, Heartbeat] = {}
        self.looks = 0  # polls so far; equal counts mean equal numbers

    def of(self, members: Sequence[Member]) -> list[Heartbeat]:
        """The members' heartbeats, in their order."""
        now_s = self._context.monotonic_s()
        if now_s - self._looked_s >= self._every_s:
            self._seen, self._looked_s = {}, now_s
            self.looks += 1
        return [self._look(member) for member in members]

    def _look(self, member: Member) -> Heartbeat:
        seen = self._seen.get(member.name)
        if seen is None:
            seen = self._seen[member.name] = self._context.look(member.name) or member.beat
        return seen
