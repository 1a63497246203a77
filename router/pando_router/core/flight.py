"""`Flight`: one request at one replica; `Flights`: the state that a router's flights share.

A flight owns the effects of its placement: the in-flight count, the breaker's probe, the lease and
the path touched in the shared tree. `close` undoes them all. A lease that closes before a good
first byte cuts the path to what the replica held before.
"""

from collections.abc import Callable, Collection, Sequence
from time import monotonic
from typing import Protocol, TypeVar

from pando_fleet.current import Current
from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_fleet.registry.replica import Heartbeat
from pando_router.core.breaker import Breaker, BreakerState
from pando_router.core.events import CacheReport
from pando_router.core.in_flight import InFlight
from pando_router.core.promises import Promises
from pando_router.core.retry_budget import RetryBudget
from pando_router.core.route import Route

_NOT_IMPLEMENTED = 501

Clock = Callable[[], float]


def has_failed(status: int) -> bool:
    """Whether an answer with this status counts as a failure of its replica.

    Statuses from 500 do, or a replica that fails faster than others answer would look idle and
    attract all requests. 501 means a healthy replica that does not know the request, 429 a healthy
    one that is full.
    """
    return status >= 500 and status != _NOT_IMPLEMENTED


class Flight:
    """Begins when a replica is chosen; `answered` or `failed` may follow, `close` always does."""

    __slots__ = ("_flights", "_is_open", "_prompt_bytes", "route")

    def __init__(self, flights: "Flights", route: Route, prompt_bytes: int) -> None:
        """Begins a try at `route`.

        Args:
            prompt_bytes: the size of the canonical prompt, which converts a replica's cache report
                from tokens to chunks; 0 if it does not stand for the prompt's tokens.
        """
        self.route = route
        self._flights = flights
        self._prompt_bytes = prompt_bytes
        self._is_open = True
        flights.in_flight.started(route.incarnation)
        flights.breaker.trying(route.incarnation)

    def answered(self, status: int, *, complete: bool) -> None:
        """The first byte of an answer arrived; an error status means that nothing was computed."""
        if status >= 400 and has_failed(status):
            self.failed()
            return
        self._flights.breaker.succeeded(self.route.incarnation)
        self._flights.answered.add(self.route.incarnation)
        if status < 400 and self.route.lease is not None:
            self.route.lease.answered(complete=complete)

    def failed(self) -> None:
        """The replica failed, before or after its first byte."""
        self._flights.breaker.failed(self.route.incarnation)

    def reported(self, report: CacheReport) -> bool:
        """Cuts the path if the replica had clearly less of it than the tree promised, and keeps
        nothing of what it computes.

        Returns whether it was cut.
        """
        route = self.route
        if route.lease is None or not self._prompt_bytes or not report.prompt_tokens:
            return False
        bytes_per_token = self._prompt_bytes / report.prompt_tokens
        delivered = int(report.cached_tokens * bytes_per_token / CHUNK_BYTES)  # full chunks
        # A full hit may look one chunk short, because of page size and uneven bytes per token.
        if delivered >= route.matched_chunks - 1:
            if route.matched_chunks > 1:
                self._flights.promises.kept(route.incarnation)
            return False
        if not self._flights.promises.broken(route.incarnation):
            return False
        route.lease.correct(delivered)
        return True

    def close(self) -> None:
        """Ends the flight, whatever its outcome; further calls do nothing."""
        if not self._is_open:
            return
        self._is_open = False
        flights, route = self._flights, self.route
        flights.in_flight.ended(route.incarnation)
        if route.lease is not None:
            route.lease.close()
        flights.released(route.pool)


class HasBeat(Protocol):
    """A replica as a router knows it."""

    @property
    def beat(self) -> Heartbeat: ...


HasBeatT = TypeVar("HasBeatT", bound=HasBeat)


class Flights:
    """The in-flight counts, health and retry budget that all flights share."""

    def __init__(self, retry_share: Current[float], clock: Clock = monotonic) -> None:
        """`clock` returns seconds and is monotonic."""
        self.clock = clock
        self.breaker = Breaker(clock)
        self.in_flight = InFlight()
        self.promises = Promises()
        self.budget = RetryBudget(retry_share, clock)
        self.unhealthy: set[str] = set()  # incarnations that fail health checks, which update it
        self.answered: set[str] = set()  # incarnations that answered since it was last emptied
        self.unanswering: set[str] = set()  # incarnations whose last check got no good answer
        self.recovered: set[str] = set()  # incarnations that stalled, and passed a check since
        self.on_release: list[Callable[[str], None]] = []  # called with the pool that has room

    def usable(self, members: Sequence[HasBeatT], barred: Collection[str]) -> tuple[HasBeatT, ...]:
        """The members outside `barred` (incarnations) that breakers and health checks allow.

        If these allow none, returns all members outside `barred`.
        """
        if barred:
            members = [one for one in members if one.beat.incarnation not in barred]
        if self.breaker.records or self.unhealthy:
            members = [one for one in members if not self.is_out(one.beat.incarnation)] or members
        return tuple(members)

    def is_out(self, incarnation: str) -> bool:
        """Whether the breaker or health checks exclude the replica."""
        return incarnation in self.unhealthy or self.is_open(incarnation)

    def is_open(self, incarnation: str) -> bool:
        """Whether the breaker excludes the replica."""
        breaker = self.breaker
        return bool(breaker.records) and breaker.state(incarnation) is BreakerState.OPEN

    def released(self, pool: str) -> None:
        for listener in self.on_release:
            listener(pool)
