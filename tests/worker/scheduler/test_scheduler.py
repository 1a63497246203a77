"""Guarantees for a client of the scheduler, for any pool size and batch."""

import pytest

from pando_worker.messages import FinishReason
from tests.worker.scheduler.hash_model import expected_tokens
from tests.worker.scheduler.world import World

pytestmark = pytest.mark.usefixtures("overlap")


def test_a_request_gets_the_tokens_of_its_own_prefix() -> None:
    world = World()
    world.send("a", range(10), max_new_tokens=7)
    world.run()
    assert world.tokens["a"] == expected_tokens(range(10), 7)
    assert world.finish["a"] is FinishReason.LENGTH


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_batched_requests_get_the_same_tokens_as_alone(page_size: int) -> None:
    world = World(pages=4096 // page_size, page_size=page_size)
    prompts = {f"r{i}": [i, *range(3 + 5 * i)] for i in range(12)}
    for rid, prompt in prompts.items():
        world.send(rid, prompt, max_new_tokens=9)
    world.run()
    assert world.tokens == {rid: expected_tokens(p, 9) for rid, p in prompts.items()}


def test_the_next_turn_of_a_conversation_hits_all_whole_pages_of_the_last() -> None:
    world = World(page_size=4)
    first = list(range(10))
    world.send("a", first, max_new_tokens=7)
    world.run()
    second = [*first, *world.tokens["a"], 5, 6]
    world.send("b", second)
    world.run()
    # 10 prompt and 6 produced tokens have keys and values (the seventh was never run).
    assert world.cached == {"a": 0, "b": 16}
    assert world.tokens["b"] == expected_tokens(second, 4)


def test_a_running_requests_prompt_is_shared_while_it_runs() -> None:
    world = World(page_size=4)
    world.send("a", range(48), max_new_tokens=50)
    world.step()
    world.send("b", [*range(48), 1])
    world.run()
    assert world.cached["b"] == 48


def test_an_identical_prompt_runs_at_least_its_last_token() -> None:
    world = World(page_size=1)
    world.send("a", range(8))
    world.run()
    world.send("b", range(8))
    world.run()
    assert world.cached["b"] == 7
    assert world.tokens["b"] == expected_tokens(range(8), 4)


def test_nothing_is_cached_when_the_radix_cache_is_off() -> None:
    world = World(radix_cache=False)
    for rid in "ab":
        world.send(rid, range(16))
        world.run()
    assert world.cached["b"] == 0
    assert world.kv.allocator.num_free == world.kv.allocator.num_pages


def test_a_long_prompt_is_prefilled_in_chunks_of_the_budget() -> None:
    world = World(pages=64, page_size=4, chunked_prefill_size=16)
    world.send("long", range(50), max_new_tokens=3)
    world.run()
    lengths = [batch.extend_lens.tolist() for batch in world.batches]
    assert lengths == [[16], [16], [16], [2], [1], [1]]
    assert world.tokens["long"] == expected_tokens(range(50), 3)


def test_one_prefill_step_stays_within_the_token_budget() -> None:
    world = World(pages=256, page_size=4, chunked_prefill_size=32, max_running=16)
    for index in range(10):
        world.send(f"r{index}", [index] * 14)
    world.run()
    assert max(len(batch.input_ids) for batch in world.batches) == 32


def test_a_prompt_that_the_step_has_no_tokens_left_for_waits_and_holds_no_pages() -> None:
    world = World(pages=64, page_size=4, chunked_prefill_size=16)
    for rid in "abc":
        world.send(rid, [ord(rid)] * 16)
    world.step()
    assert [req.rid for req in world.scheduler.planner.waiting] == ["b", "c"]
    assert world.kv.allocator.num_free == 60
    world.run()


def test_a_stop_token_ends_the_request_and_is_its_last_token() -> None:
    produced = expected_tokens(range(5), 10)
    stop = next(t for i, t in enumerate(produced) if i >= 3 and t not in produced[:i])
    world = World()
    world.send("a", range(5), max_new_tokens=10, stop_token_ids=[stop])
    world.run()
    assert world.tokens["a"] == produced[: produced.index(stop) + 1]
    assert world.finish["a"] is FinishReason.STOP


def test_a_full_pool_retracts_and_every_request_still_gets_its_tokens() -> None:
    world = World(pages=12, page_size=4, new_token_ratio=0.05)
    prompts = {f"r{i}": [i] * 6 for i in range(5)}
    for rid, prompt in prompts.items():
        world.send(rid, prompt, max_new_tokens=30)
    world.run()
    assert world.tokens == {rid: expected_tokens(p, 30) for rid, p in prompts.items()}
    assert world.scheduler.stats().retracted_requests_total > 0


def test_the_request_with_least_progress_is_retracted_first() -> None:
    world = World(pages=8, page_size=4, new_token_ratio=0.01)
    world.send("old", range(8), max_new_tokens=23)
    for _ in range(8):
        world.step()
    world.send("young", [9] * 8, max_new_tokens=23)
    while not world.scheduler.stats().retracted_requests_total:
        world.step()
    assert [req.rid for req in world.scheduler.planner.waiting] == ["young"]


def test_admission_reserves_for_what_running_requests_will_produce() -> None:
    eager = World(pages=16, page_size=4, new_token_ratio=0.01)
    careful = World(pages=16, page_size=4, new_token_ratio=1.0)
    for world in (eager, careful):
        for rid in "abcd":
            world.send(rid, [ord(rid)] * 8, max_new_tokens=20)
        world.run()
    assert eager.scheduler.stats().retracted_requests_total > 0
    assert careful.scheduler.stats().retracted_requests_total == 0


def test_cold_prefixes_are_evicted_for_new_requests_and_locked_ones_are_not() -> None:
    world = World(pages=10, page_size=4)
    world.send("cold", [1] * 16, max_new_tokens=1)
    world.run()
    world.send("hot", [2] * 16, max_new_tokens=8)
    world.step()
    world.send("new", [3] * 14, max_new_tokens=2)
    world.run()
    assert world.cached_len([1] * 16) < 16
    assert world.tokens["hot"] == expected_tokens([2] * 16, 8)
    assert world.scheduler.stats().evicted_tokens_total > 0


def test_a_request_that_can_never_fit_is_rejected_at_once_with_the_limit() -> None:
    world = World(pages=8, page_size=4)
    world.send("big", range(30), max_new_tokens=3)
    assert world.rejected["big"].status == 400
    assert "limit of 32 tokens" in world.rejected["big"].message
    world.send("fits", range(30), max_new_tokens=2)
    world.run()
    assert world.tokens["fits"] == expected_tokens(range(30), 2)


def test_a_full_queue_rejects_with_503_and_harms_nobody() -> None:
    world = World(max_queued_requests=2)
    for rid in "abc":
        world.send(rid, [1, 2, 3])
    assert world.rejected["c"].status == 503
    world.run()
    assert set(world.finish) == {"a", "b"}


def test_a_request_id_in_use_is_rejected_without_harm_to_its_owner() -> None:
    world = World()
    world.send("a", range(5))
    world.step()
    produced = world.tokens["a"]
    world.send("a", range(6))
    assert "already in use" in world.rejected["a"].message
    world.tokens["a"] = produced
    world.run()
    assert world.tokens["a"] == expected_tokens(range(5), 4)


def test_aborting_an_unknown_or_finished_request_does_nothing() -> None:
    world = World()
    world.send("a", range(5))
    world.run()
    world.abort("a")
    world.abort("never")
    world.step()
    assert world.scheduler.stats().aborted_requests_total == 0


def test_flush_forgets_everything_but_is_refused_while_requests_run() -> None:
    world = World()
    world.send("a", range(16))
    assert world.flush() is False
    world.run()
    assert world.flush() is True
    assert world.kv.allocator.num_free == world.kv.allocator.num_pages
    world.send("b", range(16))
    world.run()
    assert world.cached["b"] == 0


def test_stats_show_what_is_pinned_and_what_is_only_cached() -> None:
    world = World(pages=16, page_size=4)
    world.send("a", range(8), max_new_tokens=8)
    world.step()
    world.step()
    busy = world.scheduler.stats()
    assert (busy.running, busy.pinned_tokens, busy.cached_tokens) == (1, 12, 0)
    world.run()
    idle = world.scheduler.stats()
    # 8 prompt and 7 produced tokens have keys and values: 3 whole pages of 4.
    assert (idle.running, idle.pinned_tokens, idle.cached_tokens) == (0, 0, 12)
    assert (idle.prompt_tokens_total, idle.output_tokens_total) == (8, 8)
    assert idle.prefill_tokens_per_s > 0
    assert idle.decode_tokens_per_s > 0
