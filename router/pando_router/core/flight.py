"""`Flight`: a request's stay at one replica; `Flights`: what all of one router share.

A flight owns what placing did, from the placement on: the request's count, the breaker's probe, the
lease and the path touched in the shared tree. Whoever leaves closes it, and needs to remember
nothing else: a lease that closes before a good first byte cuts the path to what the replica held.
"""

from collections.abc import Callable, Collection, Sequence
from time import monotonic
from typing import Protocol, TypeVar

from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_fleet.registry.replica import Heartbeat
from pando_router.core.breaker import Breaker, BreakerState
from pando_router.core.events import CacheReport
from pando_router.core.in_flight import InFlight
from pando_router.core.retry_budget import RetryBudget
from pando_router.core.route import Route
from pando_router.current import Current

_NOT_IMPLEMENTED = 501

Clock = Callable[[], float]


def has_failed(status: int) -> bool:
    """Whether an answer with this status is a failure of its replica.

    From 500 on it is, which costs the replica its traffic: it fails faster than others answer, so
    its backlog would draw them all. 501 says that it is well and does not know the request, 429
    that it is well and full.
    """
    return status >= 500 and status != _NOT_IMPLEMENTED


class Flight:
    """Begins where a replica is found; `answered` or `failed` in between, `close` in any case."""

    __slots__ = ("_flights", "_is_open", "_prompt_bytes", "route")

    def __init__(self, flights: "Flights", route: Route, prompt_bytes: int) -> None:
        """A try begins at `route`.

        Args:
            prompt_bytes: the size of the canonical prompt, by which a replica's report of its cache
                is compared with the tree; 0 where tokens come from elsewhere too, as from images.
        """
        self.route = route
        self._flights = flights
        self._prompt_bytes = prompt_bytes
        self._is_open = True
        flights.in_flight.started(route.incarnation)
        flights.breaker.trying(route.incarnation)

    def answered(self, status: int, *, complete: bool) -> None:
        """The first byte of an answer that has this HTTP status; an error has computed nothing."""
        if status >= 400 and has_failed(status):
            self.failed()
            return
        self._flights.breaker.succeeded(self.route.incarnation)
        self._flights.answered.add(self.route.incarnation)
        if status < 400 and self.route.lease is not None:
            self.route.lease.answered(complete=complete)

    def failed(self) -> None:
        """The replica is lost, silent or broken, before its first byte or behind it."""
        self._flights.breaker.failed(self.route.incarnation)

    def reported(self, report: CacheReport) -> bool:
        """Cuts the path where the replica had clearly less of it than the tree said.

        Returns whether it did.
        """
        route = self.route
        if route.lease is None or not self._prompt_bytes or not report.prompt_tokens:
            return False
        bytes_per_token = self._prompt_bytes / report.prompt_tokens
        delivered = int(report.cached_tokens * bytes_per_token / CHUNK_BYTES)  # full chunks
        # One chunk is within what page size and uneven bytes per token make of a full hit.
        if delivered >= route.matched_chunks - 1:
            return False
        route.lease.correct(delivered)
        return True

    def close(self) -> None:
        """The stay is over, by whatever end; the second call does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        flights, route = self._flights, self.route
        flights.in_flight.ended(route.incarnation)
        if route.lease is not None:
            route.lease.close()
        flights.released(route.pool)


class Member(Protocol):
    """A replica as a router knows it."""

    @property
    def beat(self) -> Heartbeat: ...


MemberT = TypeVar("MemberT", bound=Member)


class Flights:
    """`usable` says which replicas may be tried."""

    def __init__(self, retry_share: Current[float], clock: Clock = monotonic) -> None:
        """`clock` gives seconds and never goes back."""
        self.clock = clock
        self.breaker = Breaker(clock)
        self.in_flight = InFlight()
        self.budget = RetryBudget(retry_share, clock)
        self.unhealthy: set[str] = set()  # incarnations that fail their checks; checks keep it
        self.answered: set[str] = set()  # incarnations, since it was emptied: they live
        self.unanswering: set[str] = set()  # incarnations whose last check got no good answer
        self.on_release: list[Callable[[str], None]] = []  # called with the pool that has room

    def usable(self, members: Sequence[MemberT], barred: Collection[str]) -> tuple[MemberT, ...]:
        """Those outside `barred` (incarnations), without those that breakers or checks leave out,
        unless that would leave none."""
        if barred:
            members = [one for one in members if one.beat.incarnation not in barred]
        if self.breaker.records or self.unhealthy:
            members = [one for one in members if not self.is_out(one.beat.incarnation)] or members
        return tuple(members)

    def is_out(self, incarnation: str) -> bool:
        """Whether the breaker or checks leave the replica out."""
        return incarnation in self.unhealthy or self.is_open(incarnation)

    def is_open(self, incarnation: str) -> bool:
        """Whether the breaker leaves the replica out."""
        breaker = self.breaker
        return bool(breaker.records) and breaker.state(incarnation) is BreakerState.OPEN

    def released(self, pool: str) -> None:
        for listener in self.on_release:
            listener(pool)
