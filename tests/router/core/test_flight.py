"""A stay at a replica: its events for breaker, lease and tree, and which replicas may be tried."""

from dataclasses import dataclass, field

import pytest

from pando_fleet.current import Current
from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_fleet.registry.replica import Heartbeat, Replica, ReplicaState
from pando_router.core.breaker import FAILURES, FIRST_PAUSE_S
from pando_router.core.events import CacheReport
from pando_router.core.flight import Flight, Flights, has_failed
from pando_router.core.promises import LIMIT
from pando_router.core.route import Route

MATCHED = 8  # chunks that the tree knew of


@dataclass
class Lease:
    """Records the events that it receives."""

    told: list[object] = field(default_factory=list)

    def answered(self, *, complete: bool) -> None:
        self.told.append(("answered", complete))

    def correct(self, chunks: int) -> None:
        self.told.append(("correct", chunks))

    def close(self) -> None:
        self.told.append("close")


class Sky:
    def __init__(self) -> None:
        self.now = 1000.0
        self.flights = Flights(Current(0.2), lambda: self.now)
        self.lease = Lease()

    def open(
        self,
        replica: str = "a",
        *,
        leased: bool = True,
        prompt_chunks: int = 12,
        matched: int = MATCHED,
    ) -> Flight:
        lease = self.lease if leased else None
        route = Route("pool", replica, replica, "", lease, matched_chunks=matched)
        return Flight(self.flights, route, prompt_chunks * CHUNK_BYTES)

    def lose_trust(self) -> None:
        """One promise broken more, and paths at `a` are cut."""
        for _ in range(LIMIT - 1):
            assert not self.open().reported(CacheReport(0, 100))

    def fail(self, replica: str, times: int = FAILURES) -> None:
        for _ in range(times):
            self.open(replica).failed()

    def usable(self, names: str, barred: str = "") -> str:
        members = [Replica(_beat(name), age_ms=0) for name in names]
        return "".join(one.beat.replica for one in self.flights.usable(members, set(barred)))


def _beat(name: str) -> Heartbeat:
    return Heartbeat(replica=name, incarnation=name, url="", model="m", state=ReplicaState.READY)


@pytest.fixture
def sky() -> Sky:
    return Sky()


@pytest.mark.parametrize(
    ("status", "failed"),
    [
        (200, False),
        (404, False),
        (429, False),
        (499, False),
        (500, True),
        (501, False),
        (502, True),
        (503, True),
    ],
)
def test_errors_of_the_server_but_for_an_unknown_method_are_failures(
    sky: Sky, status: int, failed: bool
) -> None:
    assert has_failed(status) is failed
    for _ in range(FAILURES):
        sky.open("a").answered(status, complete=True)
    assert sky.flights.is_out("a") is failed
    assert sky.flights.answered == (set() if failed else {"a"})


def test_replicas_that_fail_or_are_unhealthy_are_left_out_unless_none_would_be_left(
    sky: Sky,
) -> None:
    assert sky.usable("abc") == "abc"
    sky.fail("a")
    assert sky.usable("abc") == "bc"
    sky.flights.unhealthy.add("b")
    assert sky.usable("abc") == "c"
    assert sky.usable("ab") == "ab"
    assert sky.usable("abc", barred="c") == "ab"
    assert sky.usable("c", barred="c") == ""


def test_while_one_request_tries_whether_a_replica_is_well_no_other_does(sky: Sky) -> None:
    sky.fail("a")
    assert sky.flights.is_open("a")
    sky.now += FIRST_PAUSE_S
    assert sky.usable("ab") == "ab"
    probe = sky.open("a")
    assert sky.usable("ab") == "b"
    probe.answered(200, complete=True)
    assert sky.usable("ab") == "ab"


def test_the_lease_hears_only_of_a_good_answer_and_is_closed_once(sky: Sky) -> None:
    for status in (500, 429, 400, 399):
        sky.lease.told.clear()
        flight = sky.open()
        flight.answered(status, complete=status == 399)
        assert sky.lease.told == ([("answered", True)] if status == 399 else [])
    sky.lease.told.clear()
    flight.close()
    flight.close()
    assert sky.lease.told == ["close"]


def test_a_stay_that_ends_frees_its_place_once_and_says_so(sky: Sky) -> None:
    released: list[str] = []
    sky.flights.on_release.append(released.append)
    flight, other = sky.open(leased=False), sky.open(leased=False)
    flight.answered(200, complete=True)
    assert (sky.flights.in_flight["a"], released) == (2, [])
    flight.close()
    flight.close()
    assert (sky.flights.in_flight["a"], released) == (1, ["pool"])
    other.close()
    assert sky.flights.in_flight.total() == 0


@pytest.mark.parametrize(
    ("cached_tokens", "cut_to"),
    [(100, None), (67, None), (59, None), (58, 6), (50, 6), (9, 1), (8, 0), (0, 0)],
)
def test_where_nothing_is_kept_a_path_is_cut_if_more_than_one_chunk_was_missing(
    sky: Sky, cached_tokens: int, cut_to: int | None
) -> None:
    """The tree knew 8 of 12 chunks, which are 100 tokens; 59 cached tokens are 7 whole chunks."""
    sky.lose_trust()
    cut = sky.open().reported(CacheReport(cached_tokens, 100))
    assert cut is (cut_to is not None)
    assert sky.lease.told == ([("correct", cut_to)] if cut else [])


def test_a_path_stays_where_a_replica_keeps_most_promises(sky: Sky) -> None:
    """It has computed what it lacked, and holds it now."""
    for _ in range(3 * LIMIT):
        assert not sky.open().reported(CacheReport(0, 100))
        assert not sky.open().reported(CacheReport(90, 100))
    assert not sky.lease.told


def test_a_prompt_of_which_nothing_was_promised_says_nothing_of_a_replica(sky: Sky) -> None:
    sky.lose_trust()
    for _ in range(LIMIT):
        assert not sky.open(matched=0).reported(CacheReport(0, 100))
    assert sky.open().reported(CacheReport(0, 100))
    assert sky.lease.told == [("correct", 0)]


def test_a_replica_is_judged_by_its_own_promises_and_forgotten_when_it_is_gone(sky: Sky) -> None:
    for _ in range(LIMIT):
        sky.open("a").reported(CacheReport(0, 100))
    assert not sky.open("b").reported(CacheReport(0, 100))
    assert sky.open("a").reported(CacheReport(0, 100))
    sky.flights.promises.keep_only({"b"})
    assert not sky.open("a").reported(CacheReport(0, 100))


def test_a_report_that_cannot_be_compared_cuts_nothing(sky: Sky) -> None:
    sky.lose_trust()
    assert not sky.open(leased=False).reported(CacheReport(0, 100))
    assert not sky.open(prompt_chunks=0).reported(CacheReport(0, 100))
    assert not sky.open().reported(CacheReport(0, 0))
    assert not sky.lease.told
