"""What a replica has to do, for policies that look at nothing else.

Its heartbeat counts every router's requests but is up to half a second old; our own count is exact
but only ours: the larger of the two is the better guess. Where no heartbeats come, as while
Redis is away, our own count is all there is.
"""

from pando_router.core.in_flight import InFlight
from pando_router.fleet_view.view import Member


class Loads:
    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight

    def __call__(self, member: Member) -> int:
        """Requests running and waiting there."""
        beat = member.beat
        own = self._in_flight[beat.incarnation]
        return max(beat.running + beat.waiting, own) if member.beats else own
