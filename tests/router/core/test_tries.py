"""For events in any order, a request ends once and leaves nothing behind."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pando_fleet.current import Current
from pando_router.core.breaker import BreakerState
from pando_router.core.events import CacheReport, Failure, Head, Observer
from pando_router.core.flight import Flight, Flights
from pando_router.core.promises import LIMIT
from pando_router.core.route import Route, Shortage
from pando_router.core.tries import (
    Action,
    OutOfTurnError,
    Place,
    Refuse,
    Relay,
    Send,
    State,
    Tries,
    Wait,
    Why,
)
from tests.examples import examples

REPLICAS = ("a", "b", "c")
CHUNKS = 12
MAX_TRIES = 3


@dataclass
class Lease:
    """A model of one replica's tree: the chunks that placing touched, and those that stay."""

    held: int  # chunks that the replica really had and the tree knew
    believed: int = CHUNKS  # placing touches the whole path
    has_answered: bool = False
    ends: int = 0

    def answered(self, *, complete: bool) -> None:
        assert not self.ends
        self.has_answered = True

    def correct(self, chunks: int) -> None:
        self.believed = min(self.believed, chunks)

    def close(self) -> None:
        self.ends += 1
        if not self.has_answered:
            self.believed = self.held


@dataclass
class Told(Observer):
    """Records all events of an observer, by name."""

    counts: Counter[str] = field(default_factory=Counter)

    def placed(self, route: Route) -> None:
        self.counts["placed"] += 1

    def not_sent(self, route: Route) -> None:
        self.counts["not_sent"] += 1

    def was_busy(self, route: Route) -> None:
        self.counts["was_busy"] += 1

    def failed(self, route: Route, error: str, how: Failure) -> None:
        self.counts["failed"] += 1

    def answered(self, route: Route, head: Head) -> None:
        self.counts["answered"] += 1

    def retried(self, route: Route, reason: str) -> None:
        self.counts["retried"] += 1


class World:
    def __init__(self) -> None:
        self.now = 1000.0
        self.flights = Flights(Current(0.2), lambda: self.now)
        self.released: list[str] = []
        self.flights.on_release.append(self.released.append)
        self.leases: list[Lease] = []
        self.told = Told()
        self.tries = Tries(self.flights, self.told, max_tries=MAX_TRIES, looks_ready_s=9.0)

    def flight(self, replica: str = "a", held: int = 4) -> Flight:
        lease = Lease(held)
        self.leases.append(lease)
        route = Route("pool", replica, f"{replica}.1", "", lease, matched_chunks=held)
        return Flight(self.flights, route, CHUNKS * 256)


class AnyOrder(RuleBasedStateMachine):
    """Random events, allowed or not, in the life of one request."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.tries = self.world.tries
        self.action: Action | None = None
        self.ends = 0
        self.is_closed = False

    def _next(self, action: Action | None) -> None:
        self.action = action
        if isinstance(action, Refuse):
            self.ends += 1
        if isinstance(action, Place):
            assert self.tries.state is State.PLACING
            assert len(set(action.barred)) <= len(REPLICAS)

    @precondition(lambda self: self.action is None and not self.is_closed)
    @rule(overtakes=st.booleans())
    def arrive(self, overtakes: bool) -> None:
        self._next(self.tries.arrived(overtakes=overtakes))

    @precondition(lambda self: isinstance(self.action, Place | Wait))
    @rule(replica=st.sampled_from(REPLICAS), held=st.integers(0, CHUNKS))
    def place(self, replica: str, held: int) -> None:
        barred = self.action.barred if isinstance(self.action, Place) else ()
        if f"{replica}.1" not in barred:
            self._next(self.tries.placed(self.world.flight(replica, held)))

    @precondition(lambda self: isinstance(self.action, Place))
    @rule(shortage=st.sampled_from(Shortage))
    def find_none(self, shortage: Shortage) -> None:
        self._next(self.tries.placed(shortage))

    @precondition(lambda self: isinstance(self.action, Send))
    @rule()
    def no_connection(self) -> None:
        self._next(self.tries.not_sent())

    @precondition(lambda self: isinstance(self.action, Send))
    @rule(status=st.none() | st.sampled_from((502, 503)))
    def fail(self, status: int | None) -> None:
        self._next(self.tries.failed("broke", status))

    @precondition(lambda self: isinstance(self.action, Send))
    @rule()
    def stay_silent(self) -> None:
        self._next(self.tries.silent("did not answer"))

    @precondition(lambda self: isinstance(self.action, Send))
    @rule(
        status=st.sampled_from((200, 200, 400, 429, 429, 500, 501)),
        complete=st.booleans(),
        cached=st.none() | st.integers(0, 100),
    )
    def answer(self, status: int, complete: bool, cached: int | None) -> None:
        report = None if cached is None else CacheReport(cached, 100)
        self._next(self.tries.answered(Head(status, report, complete)))

    @precondition(lambda self: isinstance(self.action, Relay))
    @rule(stalled=st.booleans(), goes_on=st.booleans())
    def lose(self, stalled: bool, goes_on: bool) -> None:
        self.tries.lost("broke", stalled=stalled)
        if goes_on:
            self._next(self.tries.goes_on())
        else:
            self._end()

    @precondition(lambda self: isinstance(self.action, Relay))
    @rule()
    def finish(self) -> None:
        self._end()

    @precondition(lambda self: self.action is not None and self.tries.state is not State.ENDED)
    @rule()
    def leave(self) -> None:
        self._end()

    @rule(event=st.sampled_from(("not_sent", "failed", "silent", "lost", "goes_on", "reported")))
    def come_out_of_turn(self, event: str) -> None:
        """An event that cannot happen now changes nothing."""
        allowed = {
            State.SENT: {"not_sent", "failed", "silent"},
            State.ANSWERED: {"lost", "reported"},
            State.LOST: {"goes_on"},
        }.get(self.tries.state, set())
        if event in allowed:
            return
        before = self.tries.state, self.tries.flight, Counter(self.world.told.counts)
        arguments = {
            "failed": ("broke",),
            "silent": ("broke",),
            "lost": ("broke",),
            "reported": (CacheReport(1, 2),),
        }
        with pytest.raises(OutOfTurnError):
            getattr(self.tries, event)(*arguments.get(event, ()))
        assert before == (self.tries.state, self.tries.flight, self.world.told.counts)

    @rule(seconds=st.floats(0.1, 40.0))
    def pass_time(self, seconds: float) -> None:
        self.world.now += seconds

    def _end(self) -> None:
        self.ends += 1
        self.is_closed = True
        self.action = None
        self.tries.close()
        self.tries.close()

    @invariant()
    def one_stay_at_a_time(self) -> None:
        flights, state = self.world.flights, self.tries.state
        held = sum(not lease.ends for lease in self.world.leases)
        at_work = state is State.SENT or (
            state is State.ANSWERED and isinstance(self.action, Relay) and bool(held)
        )
        assert flights.in_flight.total() == held == int(at_work)

    @invariant()
    def leases_end_once_and_leave_what_is_true(self) -> None:
        for lease in self.world.leases:
            if lease.ends:
                assert lease.ends == 1
                assert lease.has_answered or lease.believed == lease.held

    @invariant()
    def released_as_often_as_taken(self) -> None:
        ended = sum(lease.ends for lease in self.world.leases)
        assert len(self.world.released) == ended

    def teardown(self) -> None:
        self.tries.close()
        assert self.tries.state is State.ENDED
        assert self.ends <= 1
        assert self.world.flights.in_flight.total() == 0
        assert all(lease.ends == 1 for lease in self.world.leases)
        told = self.world.told.counts
        assert told["placed"] == len(self.world.leases)
        assert told["retried"] <= told["failed"] + told["was_busy"]


AnyOrder.TestCase.settings = settings(
    max_examples=examples(100),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much],
)
TestAnyOrder = AnyOrder.TestCase


def sent(world: World, replica: str = "a", held: int = 4) -> Lease:
    """A request at a replica, and its lease there."""
    world.tries.arrived(overtakes=False)
    assert isinstance(world.tries.placed(world.flight(replica, held)), Send)
    return world.leases[-1]


def test_a_replica_that_answers_429_is_believed_to_hold_what_it_held_before() -> None:
    world = World()
    lease = sent(world, held=4)
    assert isinstance(world.tries.answered(Head(429)), Place)
    assert (lease.believed, lease.ends) == (4, 1)


@pytest.mark.parametrize("status", [429, 501, 404])
def test_a_probe_that_is_answered_closes_the_breaker(status: int) -> None:
    world = World()
    breaker = world.flights.breaker
    for _ in range(3):
        breaker.failed("a.1")
    world.now += 2.0
    assert breaker.state("a.1") is BreakerState.PROBING
    sent(world)
    world.tries.answered(Head(status))
    assert breaker.state("a.1") is BreakerState.CLOSED


def test_a_client_that_leaves_before_the_first_byte_leaves_no_path() -> None:
    world = World()
    lease = sent(world, held=3)
    world.tries.close()
    assert (lease.believed, lease.ends) == (3, 1)


def test_a_good_first_byte_makes_the_path_true() -> None:
    world = World()
    lease = sent(world)
    assert isinstance(world.tries.answered(Head(200)), Relay)
    world.tries.close()
    assert lease.believed == CHUNKS


def test_a_report_of_less_than_was_believed_leaves_the_path_which_is_computed_now() -> None:
    world = World()
    lease = sent(world, held=8)
    world.tries.answered(Head(200, CacheReport(25, 100)))  # a quarter of 12 chunks
    assert lease.believed == CHUNKS


def test_where_nothing_is_kept_a_report_cuts_the_path() -> None:
    world = World()
    for _ in range(LIMIT - 1):
        world.flights.promises.broken("a.1")
    lease = sent(world, held=8)
    world.tries.answered(Head(200, CacheReport(25, 100)))
    assert lease.believed == 3


def test_the_last_answer_of_429_goes_to_the_client() -> None:
    world = World()
    sent(world, "a")
    assert isinstance(world.tries.answered(Head(429)), Place)
    assert isinstance(world.tries.placed(Shortage.FULL), Relay)
    assert world.told.counts["answered"] == 1


def test_a_busy_replica_beside_failed_ones_makes_it_429() -> None:
    world = World()
    sent(world, "a")
    world.tries.answered(Head(429, retry_after_s=7))
    world.tries.placed(world.flight("b"))
    world.tries.failed("broke")
    refused = world.tries.placed(Shortage.NONE)
    assert isinstance(refused, Refuse)
    assert (refused.why, refused.retry_after_s) == (Why.BUSY, 7)
    assert refused.message == "a: answered 429; b: broke"


def test_tries_are_counted_from_zero_after_a_loss() -> None:
    world = World()
    sent(world, "a")
    world.tries.answered(Head(200))
    world.tries.lost("broke")
    action: Action = world.tries.goes_on()
    for replica in "bcd"[:MAX_TRIES]:
        assert isinstance(action, Place)
        world.tries.placed(world.flight(replica))
        action = world.tries.failed("broke")
    assert isinstance(action, Refuse)


def test_the_deadline_of_a_wait_holds_until_an_answer_was_lost() -> None:
    world = World()
    world.tries.arrived(overtakes=True)
    first = world.tries.waits_until(5.0)
    world.now += 3.0
    assert world.tries.waits_until(5.0) == first
    world.tries.placed(world.flight())
    world.tries.answered(Head(200))
    world.tries.lost("broke")
    world.tries.goes_on()
    assert world.tries.waits_until(5.0) == world.now + 5.0


def test_a_dead_replica_is_left_out_while_it_looks_ready() -> None:
    world = World()
    sent(world, "a")
    world.tries.failed("broke")
    assert world.tries.dead_now() == ["a.1"]
    world.now += 9.0
    assert world.tries.dead_now() == []
