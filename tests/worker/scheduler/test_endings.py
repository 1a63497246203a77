"""How a request ends early, in any state, without effect on others."""

from collections.abc import Callable

import pytest

from pando_worker.messages import FinishReason
from tests.worker.scheduler.hash_model import HashRunner, expected_tokens
from tests.worker.scheduler.world import World

pytestmark = pytest.mark.usefixtures("overlap")


def crowd(**settings: object) -> World:
    """Two places, three requests: one runs, one is in its chunks, one waits."""
    world = World(page_size=4, chunked_prefill_size=8, max_running=2, **settings)  # type: ignore[arg-type]
    world.send("other", [5] * 6, max_new_tokens=12)
    world.send("victim", range(20), max_new_tokens=6)
    world.send("waiting", [7] * 6, max_new_tokens=12)
    return world


def check_others(world: World) -> None:
    world.check_ownership()
    world.run()
    assert world.tokens["other"] == expected_tokens([5] * 6, 12)
    assert world.tokens["waiting"] == expected_tokens([7] * 6, 12)
    assert world.scheduler.stats().pinned_tokens == 0


def test_a_grammar_that_is_done_while_the_others_are_looked_at_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.send("late", range(9), grammar="slow")
    world.send("done", range(5), grammar="even")
    [late] = world.grammars.slow

    def done_from_now_on() -> bool:
        monkeypatch.undo()
        late.set_result(world.grammars.compile("even").result())
        return False

    monkeypatch.setattr(late, "done", done_from_now_on)
    world.run(max_steps=100)
    assert len(world.tokens["late"]) == len(world.tokens["done"]) == 4


def test_a_grammar_whose_compilation_breaks_ends_its_request_alone() -> None:
    world = World()
    world.send("victim", range(9), grammar="slow")
    world.send("other", range(5))
    world.step()
    world.grammars.slow[0].set_exception(OSError("no space left on device"))
    world.run()
    assert world.rejected["victim"].status == 500
    assert world.tokens["other"] == expected_tokens(range(5), 4)


@pytest.mark.parametrize("steps", range(12))
@pytest.mark.parametrize("victim", ["victim", "waiting"])
def test_an_abort_at_any_step_frees_the_request_and_harms_nobody(steps: int, victim: str) -> None:
    world = crowd()
    for _ in range(steps):
        world.step()
    ended = victim in world.finish
    world.abort(victim)
    world.abort(victim)  # a second abort has no effect
    for _ in range(2):  # the step in flight may still have a part of it
        world.check_ownership()
        world.step()
    assert (world.finish[victim] is FinishReason.ABORT) != ended
    assert world.scheduler.stats().aborted_requests_total == (not ended)
    check_ended = {"victim": "waiting", "waiting": "victim"}[victim]
    world.run()
    prompt, count = ([7] * 6, 12) if check_ended == "waiting" else (list(range(20)), 6)
    assert world.tokens[check_ended] == expected_tokens(prompt, count)
    assert world.tokens["other"] == expected_tokens([5] * 6, 12)


def test_an_aborted_request_keeps_its_memory_until_the_step_in_flight_is_over() -> None:
    world = World(page_size=4, max_running=1)
    world.send("victim", range(6), max_new_tokens=20)
    for _ in range(3):
        world.step()
    world.send("next", [7] * 6, max_new_tokens=2)
    world.abort("victim")
    launched = len(world.batches)
    world.step()
    # Without overlap nothing is in flight between steps.
    assert len(world.batches) == launched + (not World.OVERLAP)
    assert world.finish["victim"] is FinishReason.ABORT
    world.step()
    assert len(world.batches) == launched + 1 + (not World.OVERLAP)
    world.run()
    assert world.tokens["next"] == expected_tokens([7] * 6, 2)


def test_what_an_aborted_request_computed_stays_cached() -> None:
    world = World(page_size=4)
    world.send("a", range(16), max_new_tokens=20)
    for _ in range(6):
        world.step()
    world.abort("a")
    world.run()
    assert world.cached_len([*range(16), *expected_tokens(range(16), 20)]) >= 16


@pytest.mark.parametrize("stop_at", range(6))
def test_a_stop_token_leaves_no_trace_of_the_step_that_was_launched_after_it(stop_at: int) -> None:
    produced = expected_tokens(range(5), 10)
    stop = produced[stop_at]
    world = World(page_size=1)
    world.send("a", range(5), max_new_tokens=10, stop_token_ids=[stop])
    world.send("b", range(6), max_new_tokens=10)
    world.run()
    end = produced.index(stop) + 1
    assert world.tokens["a"] == produced[:end]
    assert world.tokens["b"] == expected_tokens(range(6), 10)
    world.send("next", [*range(5), *produced[:end], 3], max_new_tokens=4)
    world.run()
    assert world.tokens["next"] == expected_tokens([*range(5), *produced[:end], 3], 4)


def test_no_stop_token_ends_a_request_before_min_new_tokens() -> None:
    """The batch passes this to the runner as a bias. The hash model ignores biases, so only the
    batch is checked."""
    world = World()
    world.send("a", range(5), max_new_tokens=4, stop_token_ids=[3, 4], min_new_tokens=2)
    world.run()
    forbidden = [batch.sampling.bias for batch in world.batches]
    assert [bias.tokens.tolist() if bias else None for bias in forbidden] == [[3, 4]] * 2 + [
        None
    ] * 2


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("steps", range(8))
def test_a_deadline_ends_a_request_with_504_wherever_it_is(steps: int) -> None:
    clock = _Clock()
    world = crowd(clock=clock)
    world.send("late", range(20), max_new_tokens=40, deadline_s=5.0)
    for _ in range(steps):
        world.step()
    assert "late" not in world.rejected
    clock.now += 5.0
    for _ in range(2):
        world.step()
        world.check_ownership()
    assert world.rejected["late"].status == 504
    assert "deadline passed after 5 s" in world.rejected["late"].message
    check_others(world)


def test_a_request_that_ends_in_time_is_not_late() -> None:
    clock = _Clock()
    world = World(clock=clock)
    world.send("a", range(5), deadline_s=5.0)
    world.run()
    clock.now += 50.0
    world.step()
    assert world.rejected == {}


@pytest.mark.parametrize("broken_at", range(4))
def test_a_request_whose_logits_are_not_finite_fails_alone(broken_at: int) -> None:
    """Its own output token breaks it, so later steps may already be launched."""
    produced = expected_tokens([50, 2, 3], 6)
    runner = HashRunner(num_slots=256, broken=frozenset({[50, *produced][broken_at]}))
    world = World(runner=runner)
    world.send("good", [1] * 6, max_new_tokens=5)
    world.send("bad", [50, 2, 3], max_new_tokens=6)
    world.run()
    assert world.rejected["bad"].status == 500
    assert world.tokens["bad"] == produced[:broken_at]
    assert world.tokens["good"] == expected_tokens([1] * 6, 5)
    assert world.cached_len([50, 2, 3, *produced]) <= 3


Act = Callable[[World], None]


@pytest.mark.parametrize("steps", range(6))
def test_flush_is_refused_at_every_step_of_a_request(steps: int) -> None:
    world = World()
    world.send("a", range(16), max_new_tokens=4)
    for _ in range(steps):
        if world.scheduler.is_idle:
            break
        assert world.flush() is False
        world.step()
    world.run()
    assert world.flush() is True
    assert world.kv.allocator.num_free == world.kv.allocator.num_pages
