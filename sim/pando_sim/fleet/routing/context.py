"""`Context`: what the placement policy of one simulated router may know and use."""

import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pando_fleet.redis.wire import Line
from pando_fleet.registry.replica import Heartbeat
from pando_router.core.flight import Flights
from pando_router.current import Current
from pando_sim.fleet.routing.interfaces import POOL, Member, Policy
from pando_sim.fleet.routing.view import View
from pando_sim.timeline import Timeline
from pando_sim.worker.replica import Replica


class Context:
    """
    Attributes:
        number: which of the routers, from 0
        line: to the one Redis of all routers; what is sent first arrives first
        skew_s: by which this router's clock is off
    """

    def __init__(
        self,
        number: int,
        timeline: Timeline,
        line: Line,
        view: View,
        replicas: Mapping[str, Replica],
        rng: random.Random,
        retry_share: float,
    ) -> None:
        self.number = number
        self.random = rng
        self.pool = POOL
        self.line = line
        self.skew_s = 0.0
        self._timeline = timeline
        self._view = view
        self._replicas = replicas
        self.flights = Flights(Current(retry_share), self.monotonic_s)

    def redis_ms(self) -> int:
        """Redis's clock, which is the one of all scripts."""
        return self._timeline.redis_ms()

    def now_s(self) -> float:
        """This router's own clock, which may be off."""
        return self._timeline.now_s + self.skew_s

    def monotonic_s(self) -> float:
        """For waiting: a clock that nobody sets."""
        return self._timeline.now_s

    def members(self) -> Sequence[Member]:
        """By name."""
        return self._view.members

    def in_flight(self, member: Member) -> int:
        """Requests that this router has there."""
        return self.flights.in_flight[member.beat.incarnation]

    def look(self, replica: str) -> Heartbeat | None:
        """What the replica says of itself at this moment; None where it is gone. For policies of
        routers that ask their engines more often than heartbeats come."""
        self._timeline.looks_any_time = True
        there = self._replicas.get(replica)
        return there.heartbeat() if there else None

    def cached_tokens(self, replica: str, tokens: NDArray[np.int32]) -> int:
        """Of a prompt, what the replica holds at this moment: for policies of fleets whose engines
        tell each change of their caches."""
        there = self._replicas.get(replica)
        return there.cached_tokens(tokens) if there else 0

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Calls back, `delay_s` of virtual time later."""
        self._timeline.after(delay_s, act)


PolicyFactory = Callable[[Context], Policy]
"""Makes the policy of one router."""
