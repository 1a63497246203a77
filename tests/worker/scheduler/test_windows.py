"""Layers with a sliding window that release pages behind it: the effect for clients, and how little
memory a request needs."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.worker.scheduler.hash_model import HashRunner, expected_tokens
from tests.worker.scheduler.world import World

pytestmark = pytest.mark.usefixtures("overlap")

WINDOW, CHUNK = 10, 16
KEPT = 4  # pages of 4 tokens that a window of 10 can overlap


def world(window_pages: int, *, pages: int = 200, **settings: Any) -> World:
    return World(
        pages=pages,
        page_size=4,
        window=WINDOW,
        window_pages=window_pages,
        chunked_prefill_size=CHUNK,
        **settings,
    )


def expected(prompt: Sequence[int], count: int) -> list[int]:
    return expected_tokens(prompt, count, WINDOW)


def run_checked(made: World) -> int:
    """Run to the end; returns the most window pages in use at a time."""
    most = 0
    while not made.scheduler.is_idle:
        made.step()
        made.check_ownership()
        assert made.kv.windows
        most = max(most, made.kv.windows.num_pinned)
    return most


def test_a_long_output_holds_window_pages_for_one_window() -> None:
    made = world(window_pages=12)
    made.send("a", range(6), max_new_tokens=500)
    assert run_checked(made) <= KEPT + 1
    assert made.tokens["a"] == expected(range(6), 500)


def test_a_prompt_much_longer_than_the_window_pool_runs_in_chunks() -> None:
    made = world(window_pages=12)
    made.send("a", range(300), max_new_tokens=9)
    assert run_checked(made) <= KEPT + CHUNK // 4
    assert made.tokens["a"] == expected(range(300), 9)
    assert [len(batch.input_ids) for batch in made.batches[:3]] == [CHUNK] * 3


def test_a_request_whose_logits_are_not_finite_gives_back_its_window_pages() -> None:
    runner = HashRunner(800, frozenset({95}), window=WINDOW, window_slots=4 * 12)
    made = world(window_pages=12, runner=runner)
    made.send("bad", [*range(20), 95], max_new_tokens=5)
    run_checked(made)
    assert made.rejected["bad"].status == 500
    assert made.kv.windows and made.kv.windows.num_pinned == 0


def test_chunks_shrink_to_the_window_pages_that_there_are() -> None:
    made = world(window_pages=KEPT + 1)
    made.send("a", range(61), max_new_tokens=9)
    made.run()
    assert made.tokens["a"] == expected(range(61), 9)
    assert max(len(batch.input_ids) for batch in made.batches[2:]) < CHUNK


def test_the_next_turn_hits_all_whole_pages_though_most_are_released() -> None:
    made = world(window_pages=12)
    first, computed = list(range(50)), 0
    for turn in range(6):
        made.send(f"{turn}", first, max_new_tokens=30 + turn)  # ends at any position in a page
        made.run()
        assert made.tokens[f"{turn}"] == expected(first, 30 + turn)
        assert made.cached[f"{turn}"] == computed // 4 * 4
        computed = len(first) + 29 + turn  # the last token was never run
        first = [*first, *made.tokens[f"{turn}"], 5, 6]


def test_a_prefix_whose_window_pages_were_needed_is_computed_again_and_then_hit() -> None:
    made = world(window_pages=12)
    made.send("first", range(40), max_new_tokens=1)
    made.run()
    made.send("other", [7] * 80, max_new_tokens=1)
    made.run()
    for rid in ("again", "hit"):
        made.send(rid, [*range(40), 3], max_new_tokens=5)
        run_checked(made)
        assert made.tokens[rid] == expected([*range(40), 3], 5)
    assert made.cached_len(range(40)) == 40  # the other layers' pages were there all the time
    assert made.cached["again"] == 0
    assert made.cached["hit"] == 40


def test_a_prefix_is_hit_where_its_window_pages_are_left() -> None:
    """Not at its end, as requests diverge there and in its middle."""
    made = world(window_pages=100)
    made.send("first", range(60), max_new_tokens=1)
    made.run()
    for length in (60, 31, 44, 8):
        prompt = [*range(length), 90, 91]
        made.send(f"{length}", prompt, max_new_tokens=7)
        made.run()
        assert made.cached[f"{length}"] == length // 4 * 4
        assert made.tokens[f"{length}"] == expected(prompt, 7)


def test_requests_share_the_window_pages_of_a_common_prefix() -> None:
    made = world(window_pages=16, new_token_ratio=0.01)
    made.send("first", range(40), max_new_tokens=1)
    made.run()
    for index in range(5):
        made.send(f"{index}", [*range(40), index], max_new_tokens=3)
    made.step()
    assert made.scheduler.stats().running + len(made.scheduler.planner.waiting) == 5
    assert made.scheduler.stats().running == 5
    most = run_checked(made)
    assert most <= 3 + 5 * 2
    for index in range(5):
        assert made.tokens[f"{index}"] == expected([*range(40), index], 3)


def test_more_requests_than_the_window_pool_holds_wait_or_start_over() -> None:
    """The other layers have room for all of them."""
    made = world(window_pages=12, pages=400, new_token_ratio=0.01, watermark=0)
    prompts = {f"r{index}": [index] * (1 + 3 * index) for index in range(8)}
    for rid, prompt in prompts.items():
        made.send(rid, prompt, max_new_tokens=40)
    run_checked(made)
    assert made.tokens == {rid: expected(prompt, 40) for rid, prompt in prompts.items()}
    assert made.scheduler.stats().retracted_requests_total > 0


def test_admission_leaves_window_pages_for_what_running_requests_will_see() -> None:
    made = world(window_pages=12, pages=400, new_token_ratio=1.0)
    for index in range(8):
        made.send(f"{index}", [index], max_new_tokens=40)
    made.run()
    assert made.scheduler.stats().retracted_requests_total == 0


@pytest.mark.parametrize("batching", ["decode-first", "prefill-first"])
def test_prompts_that_block_each_other_are_retracted_one_by_one(batching: str) -> None:
    made = world(window_pages=KEPT + 2, batching=batching, new_token_ratio=0.01, watermark=0)
    prompts = {f"r{index}": [index] * 40 for index in range(4)}
    for rid, prompt in prompts.items():
        made.send(rid, prompt, max_new_tokens=12)
    run_checked(made)
    assert made.tokens == {rid: expected(prompt, 12) for rid, prompt in prompts.items()}


def test_aborted_requests_leave_no_window_page_pinned() -> None:
    for steps in range(9):
        made = world(window_pages=14)
        for rid, length in (("long", 50), ("short", 5)):
            made.send(rid, range(length), max_new_tokens=20)
        for _ in range(steps):
            made.step()
        made.abort("long")
        run_checked(made)
        made.kv.check_idle()
        assert made.tokens["short"] == expected(range(5), 20)


def test_stats_show_what_running_requests_see_and_what_is_kept() -> None:
    made = world(window_pages=20)
    made.send("a", range(40), max_new_tokens=3)
    made.step()
    made.step()
    stats = made.scheduler.stats()
    assert stats.window_capacity_tokens == 80
    assert 0 < stats.window_pinned_tokens <= 4 * (KEPT + CHUNK // 4)
    made.run()
    idle = made.scheduler.stats()
    assert (idle.window_pinned_tokens, idle.window_cached_tokens) == (0, 40)
    assert made.flush()
    assert made.scheduler.stats().window_cached_tokens == 0


def test_a_worker_whose_window_pool_is_taken_reports_that_it_is_full() -> None:
    """It can accept no request, however much room the other layers have; this is its pressure."""
    made = world(window_pages=12, pages=400, new_token_ratio=0.01, watermark=0)
    for index in range(8):
        made.send(f"r{index}", [index], max_new_tokens=60)
    fullest = 0.0
    while not made.scheduler.is_idle:
        made.step()
        stats = made.scheduler.stats()
        share = stats.window_pinned_tokens / stats.window_capacity_tokens
        assert stats.pinned_tokens >= share * stats.capacity_tokens
        assert stats.pinned_tokens + stats.cached_tokens <= stats.capacity_tokens
        if stats.waiting:
            fullest = max(fullest, stats.pinned_tokens / stats.capacity_tokens)
    assert fullest == 1
    assert made.scheduler.stats().pinned_tokens == 0


def test_where_the_other_layers_hold_more_that_is_what_is_reported() -> None:
    made = world(window_pages=100, pages=100)
    made.send("a", range(200), max_new_tokens=9)
    for _ in range(16):
        made.step()
    stats = made.scheduler.stats()
    assert stats.window_pinned_tokens <= 4 * (KEPT + 1)
    assert stats.pinned_tokens >= 200
