"""ThunderAgent's scheduler, case by case from its description. Backends hold 16,000 tokens."""

from pando_sim.policies.thunder_agent import THUNDER_AGENT
from tests.sim.fleet.world import with_worker
from tests.sim.policies.routers import Agents, ends, fleet, went

SPEC = with_worker(context_length=16_000)


def agents(*backends: str) -> Agents:
    known = fleet(*backends)
    return Agents(THUNDER_AGENT.make(known, SPEC), known)


def test_programs_begin_where_most_is_free_and_stay_there() -> None:
    world = agents("a", "b")
    assert [world.acts(name, 6_400) for name in ("x", "y", "z")] == ["a", "b", "a"]
    assert [world.acts(name, 6_464) for name in ("x", "y", "z")] == ["a", "b", "a"]


def test_a_new_program_waits_until_another_is_released() -> None:
    world = agents("a")
    world.acts("x", 9_600)
    new = world.waits("y", 9_600)
    assert world.known.passes(600) == []  # an acting program holds its tokens however long it acts
    world.known.session_ended("x")
    assert world.known.passes(5) == [new]
    assert world.acts("y", 9_600) == "a"


def test_of_a_backend_that_overflows_the_shortest_acting_program_is_paused() -> None:
    world = agents("a")
    for name, tokens in (("x", 3_200), ("y", 6_400), ("z", 4_800)):
        world.acts(name, tokens)
    running = world.begins("z", 8_000)
    world.known.passes(5)
    world.waits("x", 3_264)
    assert world.acts("y", 6_464) == "a"
    ends(running)


def test_a_reasoning_program_is_paused_when_its_call_ends() -> None:
    world = agents("a")
    world.acts("x", 6_400)
    world.acts("y", 6_400)
    short, long = world.begins("x", 8_000), world.begins("y", 9_600)
    world.known.passes(5)
    ends(short)
    ends(long)
    world.waits("x", 8_064)
    assert world.acts("y", 9_664) == "a"


def test_a_paused_program_goes_on_at_any_backend_before_new_ones() -> None:
    world = agents("a", "b")
    assert [world.acts("x", 6_400), world.acts("y", 9_600)] == ["a", "b"]
    assert world.acts("z", 6_400) == "a"
    world.acts("z", 12_800)
    world.known.passes(5)  # x is paused
    new, returned = world.waits("new", 6_400), world.waits("x", 9_600)
    world.known.session_ended("y")
    assert world.known.passes(5) == [returned]
    assert world.acts("x", 9_600) == "b"
    world.known.session_ended("x")
    assert world.known.passes(5) == [new]


def test_of_two_that_wait_the_shorter_goes_on_first() -> None:
    world = agents("a")
    world.acts("x", 12_800)
    long, short = world.waits("long", 9_600), world.waits("short", 8_000)
    world.known.session_ended("x")
    assert world.known.passes(5) == [short]
    world.known.session_ended("short")
    assert world.known.passes(5) == [long]


def test_nobody_waits_longer_than_half_an_hour() -> None:
    world = agents("a")
    world.acts("x", 12_800)
    new = world.waits("y", 9_600)
    assert world.known.passes(1_795) == []
    assert world.known.passes(10) == [new]


def test_one_that_has_waited_for_so_long_runs_also_where_others_run_longer() -> None:
    world = agents("a")
    world.begins("x", 12_800)
    new = world.waits("y", 9_600)
    assert world.known.passes(1_805) == [new]
    assert world.acts("y", 9_600) == "a"


def test_a_call_that_engines_refuse_is_theirs_to_refuse() -> None:
    world = agents("a")
    world.acts("x", 12_800)
    assert world.begins("y", 16_064).lease is None


def test_a_beginning_that_programs_share_counts_once() -> None:
    known = fleet("a")
    world = Agents(THUNDER_AGENT.make(known, SPEC), known)
    world.acts("xy", 12_800)
    assert world.acts("yx", 12_800) == "a"  # the same prompt


def test_a_request_of_no_session_goes_to_the_least_loaded() -> None:
    known = fleet("a", "b", loads={"a": 1})
    assert went(THUNDER_AGENT.make(known, SPEC), known, 1, 2) == "b"
