"""A replica's load, for policies that consider nothing else.

The heartbeat counts every router's requests but is up to half a second old; this router's count is
exact but covers only its own requests. The larger of the two is the better estimate. Without
heartbeats, as while Redis is away, only the router's own count remains.
"""

from pando_router.core.in_flight import InFlight
from pando_router.policies.inputs import ReplicaView


class Loads:
    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight

    def __call__(self, replica: ReplicaView) -> int:
        """Requests running and waiting there."""
        beat = replica.beat
        own = self._in_flight[beat.incarnation]
        return max(beat.running + beat.waiting, own) if replica.beats else own
