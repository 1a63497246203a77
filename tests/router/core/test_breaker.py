"""The breaker with the test's own clock."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from pando_router.core.breaker import (
    FAILURES,
    FIRST_PAUSE_S,
    LEAST,
    LONGEST_PAUSE_S,
    SHARE,
    WINDOW_S,
    Breaker,
    BreakerState,
)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def opened(clock: Clock) -> Breaker:
    breaker = Breaker(clock)
    for _ in range(FAILURES):
        breaker.failed("i")
    return breaker


def test_failures_in_a_row_open_it() -> None:
    assert opened(Clock()).state("i") is BreakerState.OPEN


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=120))
def test_it_opens_exactly_where_rows_or_the_share_say_so(outcomes: list[tuple[bool, int]]) -> None:
    clock = Clock()
    breaker = Breaker(clock)
    history: list[tuple[int, bool]] = []  # since the last window without failure
    for failed, later_s in outcomes:
        clock.now += later_s
        (breaker.failed if failed else breaker.succeeded)("i")
        history.append((int(clock.now), failed))
        history = [(at, bad) for at, bad in history if at > clock.now - WINDOW_S]
        while history and not history[0][1]:
            history.pop(0)  # successes before the first failure are not counted
        failures = sum(bad for _, bad in history)
        in_a_row = 0
        while in_a_row < len(history) and history[-1 - in_a_row][1]:
            in_a_row += 1
        share = len(history) >= LEAST and failures >= SHARE * len(history)
        if failed and (in_a_row >= FAILURES or share):
            assert breaker.state("i") is BreakerState.OPEN
            return
        assert breaker.state("i") is BreakerState.CLOSED


def test_every_other_request_failing_opens_it_too() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    for _ in range(LEAST // 2):
        breaker.failed("i")
        assert breaker.state("i") is BreakerState.CLOSED
        breaker.succeeded("i")
    breaker.failed("i")
    assert breaker.state("i") is BreakerState.OPEN


def test_answers_that_were_under_way_do_not_close_it() -> None:
    breaker = opened(Clock())
    breaker.succeeded("i")
    assert breaker.state("i") is BreakerState.OPEN


def test_a_replica_that_is_well_again_is_forgotten() -> None:
    clock = Clock()
    breaker = Breaker(clock)
    breaker.failed("i")
    assert breaker.records
    clock.now += WINDOW_S
    breaker.succeeded("i")
    assert not breaker.records


def test_one_probe_is_let_through_after_the_pause() -> None:
    clock = Clock()
    breaker = opened(clock)
    clock.now += FIRST_PAUSE_S
    assert breaker.state("i") is BreakerState.PROBING
    breaker.trying("i")
    assert breaker.state("i") is BreakerState.OPEN
    breaker.succeeded("i")
    assert breaker.state("i") is BreakerState.CLOSED


def test_pause_doubles_with_every_failed_probe_up_to_a_bound() -> None:
    clock = Clock()
    breaker = opened(clock)
    pauses = []
    for _ in range(8):
        start = clock.now
        while breaker.state("i") is BreakerState.OPEN:
            clock.now += FIRST_PAUSE_S / 4
        pauses.append(clock.now - start)
        breaker.trying("i")
        breaker.failed("i")
    assert pauses == [min(FIRST_PAUSE_S * 2**n, LONGEST_PAUSE_S) for n in range(8)]


def test_requests_that_were_under_way_do_not_lengthen_the_pause() -> None:
    clock = Clock()
    breaker = opened(clock)
    for _ in range(100):
        breaker.failed("i")
    clock.now += FIRST_PAUSE_S
    assert breaker.state("i") is BreakerState.PROBING


def test_replicas_that_are_gone_are_forgotten() -> None:
    breaker = opened(Clock())
    breaker.failed("j")
    breaker.keep_only({"j"})
    assert breaker.state("i") is BreakerState.CLOSED
    breaker.keep_only(set())
    assert not breaker.records
