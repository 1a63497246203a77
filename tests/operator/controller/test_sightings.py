"""Ages by the operator's own clock, whatever other clocks say."""

from dataclasses import replace

import pytest

from pando_fleet.records.marks import MarkKind
from pando_operator.controller.observing.sightings import Sightings
from pando_operator.lifecycle.actions import SetGate
from pando_operator.lifecycle.plan import plan
from pando_operator.lifecycle.pods import PodView, Standing
from tests.operator.lifecycle.planned import NOW, SCALING, drain_marks, mark, pod, starting


class Clock:
    def __init__(self) -> None:
        self.s = 50.0

    def __call__(self) -> float:
        return self.s


@pytest.mark.parametrize("skew_s", [-1200.0, 0.0, 1200.0])
def test_a_drain_lasts_its_timeout_whatever_the_clock_of_the_leader_that_began_it(
    skew_s: float,
) -> None:
    """`a` was told to leave by an operator whose clock was ahead or behind, and a stream runs."""
    clock = Clock()
    sightings = Sightings(clock)
    leaving = pod("a", draining_since=NOW + skew_s, handed_off=True, requests=1)

    def closed(after_s: float) -> bool:
        clock.s = 50.0 + after_s
        dated = sightings.dated([leaving, pod("b")], NOW + after_s)
        found = plan(
            dated,
            drain_marks("a"),
            target=1,
            replicas=2,
            worths={},
            now=NOW + after_s,
            scaling=SCALING,
        )
        return any(isinstance(one, SetGate) for one in found)

    timeout_s = SCALING.drain.timeout_seconds
    assert not closed(0)
    assert not closed(timeout_s - 1)
    assert closed(timeout_s)


@pytest.mark.parametrize("skew_s", [-1200.0, 1200.0])
def test_warming_lasts_its_timeout_whatever_the_clock_of_the_node(skew_s: float) -> None:
    clock = Clock()
    sightings = Sightings(clock)
    joining = pod("new", gate=False, standing=Standing.UNREADY, ready_since=NOW + skew_s)

    def opened(after_s: float) -> bool:
        clock.s = 50.0 + after_s
        found = plan(
            sightings.dated([joining, pod("old")], NOW + after_s),
            [mark(MarkKind.WARM, "new")],
            target=2,
            replicas=2,
            worths={},
            now=NOW + after_s,
            scaling=SCALING,
        )
        return any(isinstance(one, SetGate) for one in found)

    assert not opened(0)
    assert not opened(SCALING.warm.timeout_seconds - 1)
    assert opened(SCALING.warm.timeout_seconds)


def test_a_drain_that_begins_again_has_a_new_age() -> None:
    clock = Clock()
    sightings = Sightings(clock)
    first = pod("a", draining_since=NOW)
    sightings.dated([first], NOW)
    clock.s += 100
    (again,) = sightings.dated([replace(first, draining_since=NOW + 90)], NOW + 100)
    assert again.draining_since == NOW + 100


def test_states_are_forgotten_when_they_end() -> None:
    clock = Clock()
    sightings = Sightings(clock)

    def seen(one: PodView) -> PodView:
        clock.s += 10
        return sightings.dated([one], NOW + clock.s)[0]

    silent, well = pod("a", heard=False, requests=None), pod("a")
    began = seen(silent).silent_since
    assert began == NOW + clock.s
    assert seen(silent).silent_since == began
    assert seen(well).silent_since is None
    assert seen(silent).silent_since == NOW + clock.s
    assert seen(replace(silent, requests=1)).silent_since is None, "a router has a request there"
    assert seen(replace(silent, heard=None)).silent_since is None, "Redis is unreachable"
    assert seen(starting("a")).unready_since == NOW + clock.s
    assert seen(well).unready_since is None
    assert seen(pod("a", deleting=True)).deleting_since == NOW + clock.s
