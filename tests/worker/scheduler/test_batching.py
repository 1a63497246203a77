"""The contents of a step: prompts, chunks of prompts, and running streams."""

import pytest

from pando_worker.scheduler.planning.sharing import MIN_TOKENS
from tests.worker.scheduler.hash_model import expected_tokens
from tests.worker.scheduler.world import World

pytestmark = pytest.mark.usefixtures("overlap")


def streams_and_a_long_prompt(batching: str) -> World:
    """Three running streams, then a prompt of many chunks; returns after all ended."""
    world = World(pages=256, page_size=4, chunked_prefill_size=32, batching=batching)
    for rid in "abc":
        world.send(rid, [ord(rid)] * 6, max_new_tokens=40)
    for _ in range(4):
        world.step()
    world.batches.clear()
    world.send("long", range(95), max_new_tokens=3)
    world.run()
    for rid in "abc":
        assert world.tokens[rid] == expected_tokens([ord(rid)] * 6, 40)
    assert world.tokens["long"] == expected_tokens(range(95), 3)
    return world


def test_a_long_prompt_never_stalls_running_streams() -> None:
    world = streams_and_a_long_prompt("decode-first")
    chunks = [batch for batch in world.batches if max(batch.extend_lens) > 1]
    assert [max(batch.extend_lens) for batch in chunks] == [28, 28, 28, 11]
    assert all(batch.extend_lens.tolist()[:3] == [1, 1, 1] for batch in chunks)
    assert all(len(batch.input_ids) <= 32 for batch in world.batches)


def test_prefill_first_gives_prompts_whole_steps() -> None:
    world = streams_and_a_long_prompt("prefill-first")
    chunks = [batch.extend_lens.tolist() for batch in world.batches if max(batch.extend_lens) > 1]
    assert chunks == [[32], [32], [31]]


def test_streams_that_fill_the_budget_leave_a_prompt_one_page_a_step() -> None:
    world = World(pages=256, page_size=4, chunked_prefill_size=4)
    for index in range(6):
        world.send(f"r{index}", [index] * 4, max_new_tokens=30)
    while len(world.scheduler.planner.running) < 6:
        world.step()
    world.batches.clear()
    world.send("new", range(12), max_new_tokens=1)
    while "new" not in world.finish:
        world.step()
    assert [max(batch.extend_lens) for batch in world.batches[:3]] == [4, 4, 4]
    world.run()


def test_the_last_token_of_a_prompt_may_be_a_step_of_its_own() -> None:
    world = World(page_size=4, chunked_prefill_size=8)
    world.send("alone", range(9), max_new_tokens=2)
    world.run()
    assert [batch.extend_lens.tolist() for batch in world.batches] == [[8], [1], [1]]
    assert world.scheduler.stats().retracted_requests_total == 0


def test_requests_that_wait_together_compute_a_common_prefix_once() -> None:
    world = World(pages=512, page_size=4, chunked_prefill_size=1024, max_running=16)
    shared = [*range(90), *range(90)]
    for index in range(8):
        world.send(f"r{index}", [*shared, index, index + 1], max_new_tokens=3)
    world.run()
    prefilled = sum(n for b in world.batches for n in b.extend_lens.tolist() if n > 1)
    assert prefilled <= len(shared) + 8 * 4
    assert world.cached == {"r0": 0} | {f"r{index}": 180 for index in range(1, 8)}
    for index in range(8):
        assert world.tokens[f"r{index}"] == expected_tokens([*shared, index, index + 1], 3)


def test_a_request_that_waits_for_a_prefix_lets_others_pass() -> None:
    world = World(pages=512, page_size=4, chunked_prefill_size=1024)
    shared = list(range(90))
    world.send("first", [*shared, 1], max_new_tokens=3)
    world.send("second", [*shared, 2], max_new_tokens=3)
    world.send("other", [95] * 40, max_new_tokens=3)
    world.step()
    assert world.batches[0].extend_lens.tolist() == [91, 40]
    world.run()
    assert world.cached["second"] == 88


def test_a_prefix_that_takes_many_chunks_is_still_computed_once() -> None:
    world = World(pages=512, page_size=4, chunked_prefill_size=32)
    shared = [*range(90), *range(90)]
    for rid, last in (("first", 1), ("second", 2)):
        world.send(rid, [*shared, last], max_new_tokens=2)
    world.run()
    assert world.cached["first"] == 0
    # All except what is too little to wait for.
    assert world.cached["second"] >= 180 - MIN_TOKENS


@pytest.mark.parametrize("policy", ["lpm", "fcfs", "dfs-weight"])
def test_copies_of_one_prompt_share_its_pages(policy: str) -> None:
    """Parallel sampling: n requests with the same prompt."""
    world = World(pages=40, page_size=4, schedule_policy=policy, new_token_ratio=0.05)
    prompt = list(range(81))
    for index in range(6):
        world.send(f"choice {index}", prompt, max_new_tokens=8)
    world.run()
    # 21 pages of prompt and 2 of output each: six requests fit only if they share the prompt's
    # pages.
    assert world.scheduler.stats().retracted_requests_total == 0
    assert [world.cached[f"choice {index}"] for index in range(1, 6)] == [80] * 5


def test_stats_count_steps_by_their_size() -> None:
    world = World(pages=256, page_size=4)
    for rid in "abcde":
        world.send(rid, [ord(rid)] * 5, max_new_tokens=3)
    world.run()
    stats = world.scheduler.stats()
    sizes = [len(batch.extend_lens) for batch in world.batches]
    assert sum(stats.batch_sizes) == stats.steps_total == len(sizes)
    assert stats.rows_total == sum(sizes) == 15
    assert stats.batch_sizes[3] == 3  # five requests each: more than 4, up to 8
