"""How many requests run at once: the estimate of their output, and the cost of a wrong one."""

import pytest

from pando_worker.messages import LogprobsWanted
from pando_worker.scheduler.planning.new_token_ratio import DECAY_STEPS, FLOOR, NewTokenRatio
from tests.worker.scheduler.hash_model import expected_tokens
from tests.worker.scheduler.world import World

pytestmark = pytest.mark.usefixtures("overlap")


def test_the_ratio_falls_to_its_floor_while_requests_stop_early() -> None:
    ratio = NewTokenRatio(0.7)
    for _ in range(DECAY_STEPS // 2):
        ratio.decay()
    assert 0.7 * FLOOR < ratio.value < 0.7
    for _ in range(DECAY_STEPS):
        ratio.decay()
    assert ratio.value == 0.7 * FLOOR


def test_a_retraction_raises_the_ratio_and_an_idle_moment_resets_it() -> None:
    world = World(pages=12, page_size=4, new_token_ratio=0.1)
    for index in range(5):
        world.send(f"r{index}", [index] * 6, max_new_tokens=30)
    while not world.scheduler.stats().retracted_requests_total:
        before = world.scheduler.planner.ratio.value
        world.step()
    assert before < 0.1
    assert world.scheduler.planner.ratio.value > before
    world.run()
    assert world.scheduler.planner.ratio.value == 0.1


def test_the_watermark_stays_free_at_admission() -> None:
    world = World(pages=20, page_size=4, watermark=0.5, new_token_ratio=0.01)
    for rid in "abcd":
        world.send(rid, [ord(rid)] * 16, max_new_tokens=4)
    world.step()
    assert world.kv.available_pages >= 10
    assert len(world.scheduler.planner.waiting) == 2
    world.run()


def test_the_queue_reports_the_output_that_admission_expects() -> None:
    world = World(pages=8, page_size=4, new_token_ratio=0.5)
    for index in range(4):
        world.send(f"r{index}", [index] * 20, max_new_tokens=10)
    world.step()
    stats = world.scheduler.stats()
    assert (stats.running, stats.waiting, stats.waiting_tokens) == (1, 3, 60)
    expected = world.scheduler.planner.ratio.value * 30
    assert expected <= stats.waiting_output_tokens < expected + 1
    world.run()
    assert world.scheduler.stats().waiting_output_tokens == 0


def test_requests_that_name_no_max_tokens_do_not_reserve_the_whole_context() -> None:
    """Their max_tokens is the rest of the context."""
    world = World(pages=50_000, page_size=16, max_running=64, max_request_tokens=131_072)
    for index in range(40):
        world.send(f"r{index}", [index] * 30, max_new_tokens=131_042)
    world.step()
    assert world.scheduler.stats().waiting == 0


def test_a_request_as_large_as_the_pool_runs_when_it_is_alone() -> None:
    world = World(pages=8, page_size=4, watermark=0.5)
    world.send("small", [1] * 4, max_new_tokens=6)
    world.send("huge", range(20), max_new_tokens=12)
    world.run()
    assert world.tokens["huge"] == expected_tokens(range(20), 12)


def test_under_the_priority_policy_the_largest_is_retracted_whatever_its_progress() -> None:
    def retracted_first(policy: str) -> str:
        world = World(
            pages=12, page_size=4, schedule_policy=policy, new_token_ratio=0.01, watermark=0
        )
        world.send("late", [1] * 4, max_new_tokens=40, priority=1)
        for _ in range(4):
            world.step()
        world.send("urgent", [2] * 4, max_new_tokens=40, priority=-1)
        while not world.scheduler.planner.waiting or not world.tokens["urgent"]:
            world.step()
        [victim] = world.scheduler.planner.waiting
        world.run()
        assert world.tokens["late"] == expected_tokens([1] * 4, 40)
        assert world.tokens["urgent"] == expected_tokens([2] * 4, 40)
        return victim.rid

    assert retracted_first("priority") == "late"
    assert retracted_first("fcfs") == "urgent"


def test_a_retracted_prompt_in_the_middle_of_its_chunks_starts_over_and_finishes() -> None:
    world = World(pages=12, page_size=4, chunked_prefill_size=8, new_token_ratio=0.01, watermark=0)
    world.send("stream", [1] * 6, max_new_tokens=38)
    for _ in range(4):
        world.step()
    world.send("chunks", range(34), max_new_tokens=4)
    world.run()
    assert world.scheduler.stats().retracted_requests_total > 0
    assert world.tokens["stream"] == expected_tokens([1] * 6, 38)
    assert world.tokens["chunks"] == expected_tokens(range(34), 4)


def test_log_probabilities_of_a_retracted_prompt_are_reported_once() -> None:
    world = World(pages=12, page_size=4, chunked_prefill_size=8, new_token_ratio=0.01, watermark=0)
    world.send("stream", [1] * 6, max_new_tokens=38)
    for _ in range(4):
        world.step()
    world.send("chunks", range(34), max_new_tokens=4, logprobs=LogprobsWanted(prompt_start=1))
    world.run()
    assert world.scheduler.stats().retracted_requests_total > 0
    assert [-one.logprob for one in world.prompt_logprobs["chunks"]] == [*range(1, 34)]
