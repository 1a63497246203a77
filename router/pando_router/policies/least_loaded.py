"""The replica with the fewest requests.

Its heartbeat counts every router's requests but is up to half a second old; our own count is exact
but only ours: the larger of the two is the better guess. Equals take turns.
"""

from collections.abc import Sequence

from pando_router.fleet_view import Member
from pando_router.in_flight import InFlight


class LeastLoaded:
    shared = False

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self._turn = 0

    def pick(self, affinity: bytes, members: Sequence[Member]) -> Member:
        self._turn += 1
        start = self._turn % len(members)
        return min((*members[start:], *members[:start]), key=self._load)

    def _load(self, member: Member) -> int:
        beat = member.beat
        return max(beat.running + beat.waiting, self._in_flight[beat.incarnation])
