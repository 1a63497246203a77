"""`Tries`: the state machine of one request, from arrival to end. No I/O, no clock of its own.

The driver reports each event by calling its method, and performs the action that is returned. The
states, and the events that each allows:

    PLACING   placed                                     a replica is being chosen (`Place`)
    WAITING   placed                                     the request waits in a queue (`Wait`)
    SENT      not_sent, failed, silent, answered         a replica has the request (`Send`)
    ANSWERED  reported, lost                             its answer is being relayed (`Relay`)
    LOST      goes_on                                    the replica was lost mid-answer
    ENDED                                                all resources are released

`close` is allowed in every state and ends the request: it is done, or its client has disconnected.
An event that is not allowed raises OutOfTurnError.
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


# Plain names, because reading a member from the class costs five times as much.
_PLACING, _WAITING, _SENT, _ANSWERED, _LOST, _ENDED = State


class OutOfTurnError(Exception):
    """The driver reported an event that the current state does not allow."""


class Why(StrEnum):
    """Why a request is refused."""

    NO_REPLICA = "no_replica"  # no replica is ready
    FAILED = "failed"  # all replicas tried failed
    BUSY = "busy"  # at least one replica tried was only busy
    SILENT = "silent"  # a replica has the request but does not answer


class Place(msgspec.Struct, frozen=True, gc=False):
    """Choose a replica outside `barred` (incarnations); then call `placed`."""

    barred: Collection[str]


class Wait(msgspec.Struct, frozen=True, gc=False):
    """Queue the request until it gets a place; then call `placed`, or `close`."""

    shortage: Shortage


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send the request to the flight's replica."""

    flight: Flight


class Relay(msgspec.Struct, frozen=True, gc=False):
    """Relay the last answer to the client."""


class Refuse(msgspec.Struct, frozen=True):
    """Answer the client with an error, and call `close`."""

    why: Why
    message: str = ""  # what happened at each replica tried
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
            max_tries: the limit until a replica answers, and again after each lost answer.
            looks_ready_s: how long a dead replica may still look ready.
        """
        self.state = _PLACING
        self.flight: Flight | None = None  # of the current try
        self._flights = flights
        self._observer = observer
        self._max_tries = max_tries
        self._looks_ready_s = looks_ready_s
        self._failures: dict[str, str] = {}  # error by incarnation
        self._dead: dict[str, float] = {}  # by incarnation, until when it is excluded
        self._deadline: float | None = None  # of the wait, by the clock of `flights`
        self._retry_after_s = 0
        self._tries = 0
        self._allowed = max_tries
        self._reason = ""  # why the last try ended, if it may be retried
        self._busy: Head | None = None  # the 429 that ended the last try

    # Events before a replica has the request

    def arrived(self, *, overtakes: bool) -> Place | Wait:
        """The request arrived; `overtakes` is true if placing it now would overtake others."""
        self._flights.budget.request()
        return self._wait(Shortage.FULL) if overtakes else self._place()

    def placed(self, found: Flight | Shortage) -> Send | Wait | Relay | Refuse:
        self._expect(_PLACING, _WAITING)
        if isinstance(found, Shortage):
            # Relaying a busy replica's 429 now is better than queueing.
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
        """The deadline by the clock of `flights`; a later wait has what the first one left."""
        if self._deadline is None:
            self._deadline = self._flights.clock() + timeout_s
        return self._deadline

    def dead_now(self) -> list[str]:
        """Incarnations to exclude while the request waits.

        Their connections broke, but an earlier heartbeat may make them look ready.
        """
        now = self._flights.clock()
        return [incarnation for incarnation, until in self._dead.items() if now < until]

    # Events at a replica

    def not_sent(self) -> Place:
        """No connection was free; the replica counts as full, not as failed."""
        self._expect(_SENT)
        assert self.flight is not None
        self.flight.close()
        self._observer.not_sent(self.flight.route)
        self._reason = ""
        return self._place()

    def failed(self, error: str, status: int | None = None) -> Place | Relay | Refuse:
        """The replica failed before its first byte: by `status`, or by its connection if None."""
        route = self._fails(Failure.NO_ANSWER, error).route
        if status is None:
            self._found_dead(route)
        return self._again(route, str(status or "connection"))

    def silent(self, error: str) -> Refuse:
        """The replica did not answer in time; no retry, because it may still be computing."""
        route = self._fails(Failure.SILENT, error).route
        self.close()
        return Refuse(Why.SILENT, f"replica {route.replica!r} {error}")

    def answered(self, head: Head) -> Place | Relay | Refuse:
        """The first byte arrived. A busy replica's request is tried at another one.

        Keep the busy answer: a later `Relay` may refer to it.
        """
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
        """The replica reported its cached tokens, with its first byte or at the end."""
        self._expect(_ANSWERED)
        assert self.flight is not None
        was_cut = self.flight.reported(report)
        self._observer.cached(self.flight.route, report, was_cut=was_cut)

    def lost(self, error: str, *, stalled: bool = False) -> None:
        """The answer was cut off, or stalled. Call `goes_on` or `close` next."""
        self._fails(Failure.STALLED if stalled else Failure.CUT_OFF, error)
        self.state = _LOST

    def goes_on(self) -> Place:
        """Another replica continues a lost answer."""
        self._expect(_LOST)
        self._tries += 1
        self._allowed = self._tries + self._max_tries
        self._deadline = None  # a wait from here on is a new one
        self._reason = MID_STREAM
        return self._place()

    def close(self) -> None:
        """Ends the request, whatever its outcome; further calls do nothing."""
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

    # Failures

    def _fails(self, how: Failure, error: str) -> Flight:
        """Closes the current flight as failed, and returns it."""
        self._expect(_ANSWERED if how.is_mid_stream else _SENT)
        assert self.flight is not None
        flight, route = self.flight, self.flight.route
        if how is not Failure.STALLED:  # a stall may be caused by the client or the network
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
            allowed = " or ".join(one.name for one in states)
            raise OutOfTurnError(f"the request is {self.state.name}, expected {allowed}")
