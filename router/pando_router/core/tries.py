"""`Tries`: what becomes of one request, from its arrival to its end. No I/O, no clock of its own.

Whoever drives it calls the method of what happened and does what the returned action says. The
states, and which events are allowed in each:

    PLACING   placed                                     an answer to `Place` is awaited
    WAITING   placed                                     the request stands in a queue (`Wait`)
    SENT      not_sent, failed, silent, answered         a replica has it (`Send`)
    ANSWERED  reported, lost                             its answer goes to the client (`Relay`)
    LOST      goes_on                                    its replica was lost amid the answer
    ENDED                                                everything is given back

`close` is allowed always and ends the request: its client has gone, or all is done. An event that
is not allowed raises OutOfTurnError.
"""

from collections.abc import Collection
from enum import Enum, StrEnum, auto

import msgspec

from pando_router.core.events import CacheReport, Failure, Head, Observer
from pando_router.core.flight import Flight, Flights
from pando_router.core.route import Route, Shortage

MID_STREAM = "mid_stream"

_TOO_MANY_REQUESTS = 429


class State(Enum):
    PLACING = auto()
    WAITING = auto()
    SENT = auto()
    ANSWERED = auto()
    LOST = auto()
    ENDED = auto()


# Members by plain names: reading them from the class costs five times as much.
_PLACING, _WAITING, _SENT, _ANSWERED, _LOST, _ENDED = State


class OutOfTurnError(Exception):
    """The driver reported an event that cannot happen now."""


class Why(StrEnum):
    """Why a request is refused."""

    NO_REPLICA = "no_replica"  # none is ready
    FAILED = "failed"  # those that were tried failed
    BUSY = "busy"  # of those that were tried, one was only busy
    SILENT = "silent"  # the replica has the request and does not answer


class Place(msgspec.Struct, frozen=True, gc=False):
    """Find a replica outside `barred` (incarnations); then `placed`."""

    barred: Collection[str]


class Wait(msgspec.Struct, frozen=True, gc=False):
    """Let the request wait for its turn in the queue; then `placed`, or `close`."""

    shortage: Shortage


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send the request to the flight's replica."""

    flight: Flight


class Relay(msgspec.Struct, frozen=True, gc=False):
    """Pass the last answer on to the client."""


class Refuse(msgspec.Struct, frozen=True):
    """Tell the client that there is no answer, and `close`."""

    why: Why
    message: str = ""  # what happened at the replicas that were tried
    retry_after_s: int = 0  # the longest that a busy replica asked for


Action = Place | Wait | Send | Relay | Refuse

_RELAY = Relay()


class Tries:
    def __init__(
        self,
        flights: Flights,
        observer: Observer,
        *,
        max_tries: int,
        looks_ready_s: float,
    ) -> None:
        """
        Args:
            max_tries: until a replica answers, and again after each loss of one that did.
            looks_ready_s: for so long a replica that died may still look ready.
        """
        self.state = _PLACING
        self.flight: Flight | None = None  # of the try under way
        self._flights = flights
        self._observer = observer
        self._max_tries = max_tries
        self._looks_ready_s = looks_ready_s
        self._failures: dict[str, str] = {}  # by incarnation, what happened there
        self._dead: dict[str, float] = {}  # incarnations, until when they are left out
        self._deadline: float | None = None  # by the clock of `flights`, of the wait
        self._retry_after_s = 0
        self._tries = 0
        self._allowed = max_tries
        self._reason = ""  # how the last try ended, if another one may follow it
        self._busy: Head | None = None  # the 429 with which the last try ended

    # What happens before a replica is asked

    def arrived(self, *, overtakes: bool) -> Place | Wait:
        """The request is here; `overtakes` says that others wait, whose turn is before."""
        self._flights.budget.request()
        return self._wait(Shortage.FULL) if overtakes else self._place()

    def placed(self, found: Flight | Shortage) -> Send | Wait | Relay | Refuse:
        self._expect(_PLACING, _WAITING)
        if isinstance(found, Shortage):
            # A busy replica's answer in hand is better than a place in the queue.
            gives_up = found is Shortage.NONE or self._busy is not None
            return self._give_up() if gives_up else self._wait(found)
        self.state, self.flight, self._busy = _SENT, found, None
        if self._reason:
            self._flights.budget.retry()
            self._observer.retried(found.route, self._reason)
            self._reason = ""
        self._observer.placed(found.route)
        return Send(found)

    def waits_until(self, timeout_s: float) -> float:
        """By the clock of `flights`; one that comes again has what is left of its first wait."""
        if self._deadline is None:
            self._deadline = self._flights.clock() + timeout_s
        return self._deadline

    def dead_now(self) -> list[str]:
        """Incarnations to leave out while the request waits: their connections broke, though a
        heartbeat from before may make them look ready."""
        now = self._flights.clock()
        return [incarnation for incarnation, until in self._dead.items() if now < until]

    # What happens at a replica

    def not_sent(self) -> Place:
        """No connection was free: the replica counts as full, not as failed."""
        self._expect(_SENT)
        assert self.flight is not None
        self.flight.close()
        self._observer.not_sent(self.flight.route)
        self._reason = ""
        return self._place()

    def failed(self, error: str, status: int | None = None) -> Place | Relay | Refuse:
        """It failed before its first byte, by an answer of `status` or by its connection."""
        route = self._fails(Failure.NO_ANSWER, error).route
        if status is None:
            self._found_dead(route)
        return self._again(route, str(status or "connection"))

    def silent(self, error: str) -> Refuse:
        """It did not answer in time, and may be at work: another would do the work twice."""
        route = self._fails(Failure.SILENT, error).route
        self.close()
        return Refuse(Why.SILENT, f"replica {route.replica!r} {error}")

    def answered(self, head: Head) -> Place | Relay | Refuse:
        """The first byte is here. Another replica is asked where this one is busy; keep its answer,
        as `Relay` may mean it later."""
        self._expect(_SENT)
        assert self.flight is not None
        flight, route = self.flight, self.flight.route
        flight.answered(head.status, complete=head.complete)
        if head.status == _TOO_MANY_REQUESTS and self._tries + 1 < self._allowed:
            flight.close()
            self._observer.was_busy(route)
            self._retry_after_s = max(self._retry_after_s, head.retry_after_s)
            self._failures[route.incarnation] = f"{route.replica}: answered 429"
            self._busy = head
            return self._again(route, str(head.status))
        return self._relay(head)

    def reported(self, report: CacheReport) -> None:
        """What the replica says of its cache, with its first byte or at the end."""
        self._expect(_ANSWERED)
        assert self.flight is not None
        was_cut = self.flight.reported(report)
        self._observer.cached(self.flight.route, report, was_cut=was_cut)

    def lost(self, error: str, *, stalled: bool = False) -> None:
        """The answer broke off, or stands still. Then `goes_on`, or `close`."""
        self._fails(Failure.STALLED if stalled else Failure.CUT_OFF, error)
        self.state = _LOST

    def goes_on(self) -> Place:
        """The rest of a lost answer is asked of another replica."""
        self._expect(_LOST)
        self._tries += 1
        self._allowed = self._tries + self._max_tries
        self._deadline = None  # what it waits from here on is another wait
        self._reason = MID_STREAM
        return self._place()

    def close(self) -> None:
        """The request is over, by whatever end; the second call does nothing."""
        if self.flight is not None:
            self.flight.close()
            self.flight = None
        self.state = _ENDED

    # Actions

    def _place(self) -> Place:
        self.state = _PLACING
        return Place(self._failures)

    def _wait(self, shortage: Shortage) -> Wait:
        self.state = _WAITING
        return Wait(shortage)

    def _relay(self, head: Head) -> Relay:
        self.state = _ANSWERED
        assert self.flight is not None
        self._observer.answered(self.flight.route, head)
        if head.report is not None and head.status < 400:
            self.reported(head.report)
        return _RELAY

    def _again(self, route: Route, reason: str) -> Place | Relay | Refuse:
        self._tries += 1
        self._reason = reason
        if self._tries < self._allowed:
            if self._flights.budget.allows():
                return self._place()
            self._observer.retry_refused(route)
        return self._give_up()

    def _give_up(self) -> Relay | Refuse:
        if self._busy is not None:
            return self._relay(self._busy)
        why = Why.NO_REPLICA
        if self._failures:
            why = Why.BUSY if self._retry_after_s else Why.FAILED
        self.close()
        return Refuse(why, "; ".join(self._failures.values()), self._retry_after_s)

    # What failed

    def _fails(self, how: Failure, error: str) -> Flight:
        """The flight that failed, which is closed."""
        self._expect(_ANSWERED if how.is_mid_stream else _SENT)
        assert self.flight is not None
        flight, route = self.flight, self.flight.route
        if how is not Failure.STALLED:  # which may be the client's or the network's doing
            flight.failed()
        if how is Failure.CUT_OFF or how is Failure.STALLED:
            self._found_dead(route)
        flight.close()
        self._failures[route.incarnation] = f"{route.replica}: {error}"
        self._observer.failed(route, error, how)
        return flight

    def _found_dead(self, route: Route) -> None:
        self._dead[route.incarnation] = self._flights.clock() + self._looks_ready_s

    def _expect(self, *states: State) -> None:
        if self.state not in states:
            raise OutOfTurnError(f"{self.state.name} is none of {[one.name for one in states]}")
