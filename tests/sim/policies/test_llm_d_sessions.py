"""llm-d's proposed bound on active sessions, case by case. Replicas hold 16,000 tokens."""

from pando_sim.policies.llm_d_sessions import LLM_D_SESSIONS
from tests.sim.fleet.world import with_worker
from tests.sim.policies.routers import Agents, ends, fleet, went

SPEC = with_worker(context_length=16_000)


def agents(*replicas: str) -> Agents:
    known = fleet(*replicas)
    return Agents(LLM_D_SESSIONS.make(known, SPEC), known)


def test_an_active_session_stays_at_its_replica() -> None:
    world = agents("a", "b")
    assert [world.acts(name, 6_400) for name in ("x", "y")] == ["a", "b"]
    assert [world.acts(name, 9_600) for name in ("x", "y", "x")] == ["a", "b", "a"]


def test_a_new_session_waits_until_one_was_idle_for_a_minute() -> None:
    world = agents("a")
    world.acts("x", 9_600)
    new = world.waits("y", 9_600)
    assert world.known.passes(59) == []
    assert world.known.passes(1) == [new]
    assert world.acts("y", 9_600) == "a"
    world.waits("x", 9_664)


def test_a_session_that_runs_is_active_however_long() -> None:
    world = agents("a")
    running = world.begins("x", 9_600)
    new = world.waits("y", 9_600)
    assert world.known.passes(600) == []
    ends(running)
    assert world.known.passes(60) == [new]


def test_when_sessions_outgrow_their_replica_the_longest_idle_is_paused() -> None:
    world = agents("a")
    for name in ("x", "y", "z"):
        world.acts(name, 4_800)
        world.known.passes(1)
    assert world.acts("z", 8_000) == "a"
    assert world.acts("y", 4_864) == "a"
    world.waits("x", 4_864)


def test_paused_sessions_go_before_new_ones() -> None:
    world = agents("a")
    world.acts("x", 6_400)
    world.acts("y", 6_400)
    running = world.begins("y", 12_800)  # x is paused
    new, paused = world.waits("new", 6_400), world.waits("x", 6_464)
    ends(running)
    assert world.known.passes(60) == [paused, new]


def test_nobody_overtakes_the_first_that_waits() -> None:
    world = agents("a")
    running = world.begins("x", 9_600)
    large, small = world.waits("large", 9_600), world.waits("small", 3_200)
    ends(running)
    assert world.known.passes(60) == [large, small]


def test_a_request_of_no_session_goes_where_the_scorers_choose() -> None:
    known = fleet("a", "b")
    policy = LLM_D_SESSIONS.make(known, SPEC)
    assert [went(policy, known, 1), went(policy, known, 2)] == ["a", "b"]
