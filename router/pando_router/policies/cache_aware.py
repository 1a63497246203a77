"""The default: placement in Redis weighs cache and load; without it, the prompt's start decides."""

from collections.abc import Sequence

from pando_router import rendezvous
from pando_router.fleet_view import Member
from pando_router.in_flight import InFlight


class CacheAware:
    shared = True

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight

    def pick(self, affinity: bytes, members: Sequence[Member]) -> Member:
        by_name = {member.beat.replica: member for member in members}
        loads = {name: self._in_flight[m.beat.incarnation] for name, m in by_name.items()}
        return by_name[rendezvous.choose(affinity, loads)]
