"""Prompts that cannot share a step or must not wait for each other."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.messages import LogprobsWanted, Pooling
from pando_worker.policies.eviction import EVICTION_POLICIES
from tests.examples import examples
from tests.worker.scheduler.hash_model import HashRunner, expected_tokens
from tests.worker.scheduler.world import World

pytestmark = pytest.mark.usefixtures("overlap")

SCORED = LogprobsWanted(top=0, prompt_start=0)


def steps_until(world: World, rids: set[str], most: int = 10_000) -> dict[str, int]:
    """The step in which each request got its first token, or its embedding."""
    first: dict[str, int] = {}
    for step in range(1, most):
        world.step()
        for rid in rids - first.keys():
            if world.tokens[rid] or rid in world.embeddings:
                first[rid] = step
        if len(first) == len(rids):
            break
    return first


@pytest.mark.parametrize("kind", ["mean", "scored"])
def test_prompts_that_match_nothing_are_batched_as_if_they_had_nothing_in_common(
    kind: str,
) -> None:
    world = World(pages=4096, max_running=64, chunked_prefill_size=4096)
    common = list(range(40))
    for index in range(60):
        if kind == "mean":
            world.embed(f"r{index}", [*common, index], Pooling.MEAN)
        else:
            world.send(f"r{index}", [*common, index], max_new_tokens=1, logprobs=SCORED)
    world.run()
    assert len(world.batches) <= 2
    assert len(world.embeddings) + len(world.finish) == 60


def test_scored_prompts_share_what_lies_before_the_first_scored_token() -> None:
    world = World(pages=4096, max_running=64, chunked_prefill_size=4096)
    wanted = LogprobsWanted(top=0, prompt_start=100)
    for index in range(20):
        prompt = [*range(100), 50, 60, index]
        world.send(f"r{index}", prompt, max_new_tokens=1, logprobs=wanted)
    world.run()
    assert sorted(world.cached.values()) == [0, *[96] * 19]


def test_an_ordinary_request_does_not_wait_behind_scored_ones() -> None:
    world = World(pages=4000, max_running=200, chunked_prefill_size=400)
    for index in range(200):
        prompt = [*range(40), index % 90, index // 90]
        world.send(f"s{index}", prompt, max_new_tokens=1, logprobs=SCORED)
    for step in range(20):
        rid = f"ordinary {step}"
        world.send(rid, [91 + step % 3, step, 5], max_new_tokens=1)
        world.step()
    waits = steps_until(world, {f"ordinary {step}" for step in range(20)})
    assert max(waits.values()) <= 8
    world.run()


@pytest.mark.parametrize("policy", ["lpm", "fcfs", "hrrn"])
def test_short_prompts_pass_one_that_is_longer_than_many_steps(policy: str) -> None:
    world = World(
        pages=4096, page_size=4, max_running=64, chunked_prefill_size=64, schedule_policy=policy
    )
    world.send("long", [index % 89 for index in range(2048)], max_new_tokens=1)
    world.step()
    for index in range(20):
        world.send(f"short {index}", [index, 90, 91, 92], max_new_tokens=1)
    rids = {"long", *(f"short {index}" for index in range(20))}
    first = steps_until(world, rids)
    assert max(first[rid] for rid in rids - {"long"}) <= 5
    # Alone it needs 32 steps; the others have 80 tokens.
    assert first["long"] <= 35
    assert world.tokens["long"] == expected_tokens([index % 89 for index in range(2048)], 1)
    world.run()


def test_a_long_prompt_gets_half_of_each_step_however_many_short_ones_come() -> None:
    world = World(pages=8192, page_size=4, max_running=64, chunked_prefill_size=64)
    world.send("long", [index % 89 for index in range(1600)], max_new_tokens=1)
    sent = 0
    for _ in range(70):
        while len(world.scheduler.planner.waiting) < 20:
            world.send(f"r{sent}", [90, *divmod(sent, 90), *range(13)], max_new_tokens=1)
            sent += 1
        world.step()
        if world.tokens["long"]:
            break
    assert world.tokens["long"], "50 steps of 32 tokens, and two more until it is seen"
    assert len(world.finish) > 60, "while the other half went to others"
    world.run()


def test_a_prompt_that_a_step_can_complete_is_not_delayed_by_a_longer_one() -> None:
    world = World(pages=1024, page_size=4, chunked_prefill_size=64, max_running=8)
    world.send("first", [1, *range(40)], max_new_tokens=1)
    world.send("longer", [2, *range(400)], max_new_tokens=1)
    world.step()
    [batch] = world.batches
    # 41 tokens are more than half of the step, but all of them run; the other gets the rest.
    assert sorted(batch.extend_lens.tolist()) == [20, 41]
    world.run()


def test_what_a_failed_request_computed_leaves_the_cache() -> None:
    prompt = [*range(80), 95]
    world = World(
        runner=HashRunner(num_slots=256, broken=frozenset({95})),
        chunked_prefill_size=16,
        max_running=4,
    )
    world.send("warm", prompt[:12], max_new_tokens=1)
    world.run()
    world.send("bad", prompt, max_new_tokens=4)
    for _ in range(3):
        world.step()
    # It matches the part that the other one has computed, and continues from there by itself.
    world.send("other", [*prompt[:40], 7], max_new_tokens=30)
    world.run()
    assert world.rejected["bad"].status == 500
    assert world.tokens["other"] == expected_tokens([*prompt[:40], 7], 30)
    assert world.cached_len(prompt) == 12
    world.check_ownership()
    assert world.flush()


@settings(max_examples=examples(40))
@given(data=st.data())
def test_however_requests_fail_all_pages_are_accounted_for(data: st.DataObject) -> None:
    """Requests share prefixes with requests that fail at any step."""
    world = World(
        runner=HashRunner(num_slots=400, broken=frozenset({95})),
        pages=100,
        chunked_prefill_size=data.draw(st.sampled_from([8, 16, 64])),
        eviction_policy=data.draw(st.sampled_from([*EVICTION_POLICIES])),
    )
    for index in range(data.draw(st.integers(2, 12))):
        length = data.draw(st.integers(1, 60))
        tail = data.draw(st.lists(st.sampled_from([1, 2, 95]), min_size=1, max_size=6))
        world.send(
            f"r{index}", [*range(length), *tail], max_new_tokens=data.draw(st.integers(1, 9))
        )
        for _ in range(data.draw(st.integers(0, 4))):
            world.step()
            world.check_ownership()
    world.run()
    assert world.flush()


def test_stats_tell_what_is_computed_of_prompts_that_have_no_token_yet() -> None:
    world = World(pages=1024, chunked_prefill_size=64)
    prompt = [token % 90 for token in range(640)]
    world.send("first", prompt, max_new_tokens=1)
    world.run()
    world.send("longer", [*prompt, *range(320)], max_new_tokens=8)
    before = 0
    while not world.tokens["longer"]:
        world.step()
        stats = world.scheduler.stats()
        if not world.tokens["longer"]:
            assert stats.begun_tokens == before + 64, "without the cached ones"
            seen = range(641, 641 + stats.begun_tokens)  # each sees itself and all before it
            assert stats.begun_context == sum(seen)
            before = stats.begun_tokens
    assert before >= 256
    assert (stats.begun_tokens, stats.begun_context) == (0, 0), "it has its first token"
    world.run()
