"""`Context`: what the placement policy of one simulated router may know and use."""

import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pando_fleet.current import Current
from pando_fleet.redis.wire import Line
from pando_fleet.registry.replica import Heartbeat
from pando_router.core.flight import Flights
from pando_sim.fleet.routing.interfaces import POOL, Member, Policy
from pando_sim.fleet.routing.view import View
from pando_sim.timeline import Timeline
from pando_sim.worker.replica import Replica


class Context:
    """
    Attributes:
        number: the router's number, from 0
        line: to the Redis of all routers; keeps the order of commands
        skew_s: the error of this router's clock
        go_on: asks the policy again about the request of this number, which it has held; set by
            the router
        session_ended: called with the name of a session that has ended; set by a policy whose
            clients tell it so
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
        self.go_on: Callable[[int], None] = _nobody_is_held
        self.session_ended: Callable[[str], None] = _nobody_asks
        self._timeline = timeline
        self._view = view
        self._replicas = replicas
        self.flights = Flights(Current(retry_share), self.monotonic_s)

    def redis_ms(self) -> int:
        """Redis's clock, which all scripts use."""
        return self._timeline.redis_ms()

    def now_s(self) -> float:
        """This router's own clock, which may be wrong."""
        return self._timeline.now_s + self.skew_s

    def monotonic_s(self) -> float:
        """A clock for waiting, which nobody sets."""
        return self._timeline.now_s

    def members(self) -> Sequence[Member]:
        """The members, by name."""
        return self._view.members

    def in_flight(self, member: Member) -> int:
        """Requests that this router has there."""
        return self.flights.in_flight[member.beat.incarnation]

    def look(self, replica: str) -> Heartbeat | None:
        """The replica's current report; None if it is gone. For policies of routers that poll their
        engines more often than heartbeats arrive."""
        self._timeline.looks_any_time = True
        there = self._replicas.get(replica)
        return there.heartbeat() if there else None

    def cached_tokens(self, replica: str, tokens: NDArray[np.int32], adapter: str) -> int:
        """How many of a prompt's tokens the replica holds now, computed with that adapter: for
        policies of fleets whose engines report each change of their caches."""
        there = self._replicas.get(replica)
        return there.cached_tokens(tokens, adapter) if there else 0

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Calls `act` after `delay_s` of virtual time."""
        self._timeline.after(delay_s, act)


def _nobody_is_held(number: int) -> None:
    raise AssertionError(f"request {number} is not held")


def _nobody_asks(session: str) -> None:
    pass


PolicyFactory = Callable[[Context], Policy]
"""Makes the policy of one router."""
