"""The breaker under a clock of the test's own."""

from dataclasses import dataclass

from pando_router.breaker import (
    FAILURES,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
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


def test_only_failures_in_a_row_open_it() -> None:
    breaker = Breaker(Clock())
    for _ in range(10):
        for _ in range(FAILURES - 1):
            breaker.failed("i")
        breaker.succeeded("i")
    assert breaker.state("i") is BreakerState.CLOSED
    assert opened(Clock()).state("i") is BreakerState.OPEN


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
    assert not breaker
