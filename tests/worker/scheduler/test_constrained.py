"""Requests that follow a grammar, among others that do not."""

import pytest

from pando_worker.messages import FinishReason
from tests.worker.scheduler.hash_model import VOCAB, expected_tokens, next_allowed
from tests.worker.scheduler.world import World

pytestmark = pytest.mark.usefixtures("overlap")


def even_tokens(prompt: list[int], count: int) -> list[int]:
    produced: list[int] = []
    for _ in range(count):
        following = expected_tokens([*prompt, *produced], 1)[0]
        produced.append(next_allowed(following, lambda token: token % 2 == 0))
    return produced


def test_a_mask_holds_for_its_own_request_alone() -> None:
    world = World(pages=128)
    world.send("free", range(9), max_new_tokens=12)
    world.send("even", range(9), max_new_tokens=12, grammar="even")
    world.run()
    assert world.tokens["free"] == expected_tokens(range(9), 12)
    assert world.tokens["even"] == even_tokens(list(range(9)), 12)


def test_a_constrained_request_survives_chunks_and_retractions() -> None:
    world = World(pages=12, page_size=4, chunked_prefill_size=8, new_token_ratio=0.01, watermark=0)
    prompts = {f"r{index}": [index] * 11 for index in range(4)}
    for rid, prompt in prompts.items():
        world.send(rid, prompt, max_new_tokens=20, grammar="even")
    world.run()
    assert world.scheduler.stats().retracted_requests_total > 0
    assert world.tokens == {rid: even_tokens(p, 20) for rid, p in prompts.items()}


@pytest.mark.parametrize("free", range(4))
def test_forced_tokens_are_taken_without_sampling_and_end_the_request(free: int) -> None:
    forced = [11, 12, 13, 14, 15, 16, 17, 18]
    world = World()
    grammar = f"{free}:{' '.join(map(str, forced))}"
    world.send("other", [4] * 5, max_new_tokens=14)
    world.send("a", range(7), max_new_tokens=40, grammar=grammar)
    world.run()
    assert world.tokens["a"] == [*expected_tokens(range(7), free), *forced]
    assert world.finish["a"] is FinishReason.STOP
    assert world.tokens["other"] == expected_tokens([4] * 5, 14)
    sampled = sum(len(batch.sample_rows) for batch in world.batches) - 14
    assert sampled < free + len(forced)


def test_forced_tokens_stop_at_the_limit() -> None:
    world = World()
    world.send("a", range(7), max_new_tokens=5, grammar="1:11 12 13 14 15 16 17")
    world.run()
    assert world.tokens["a"] == [*expected_tokens(range(7), 1), 11, 12, 13, 14]
    assert world.finish["a"] is FinishReason.LENGTH


def test_tokens_after_a_jump_are_those_of_the_whole_prefix() -> None:
    world = World(page_size=1, pages=64)
    world.send("a", range(7), max_new_tokens=9, grammar="1:11 12 13 14 15 …")
    world.run()
    start = [*expected_tokens(range(7), 1), 11, 12, 13, 14, 15]
    assert world.tokens["a"] == [*start, *expected_tokens([*range(7), *start], 3)]
    world.send("b", [*range(7), *world.tokens["a"], 3], max_new_tokens=5)
    world.run()
    assert world.cached["b"] >= 11
    assert world.tokens["b"] == expected_tokens([*range(7), *world.tokens["a"], 3], 5)


def test_a_wrong_grammar_fails_alone_with_its_reason() -> None:
    world = World()
    world.send("good", range(9))
    world.send("bad", range(9), grammar="nonsense")
    world.run()
    assert world.rejected["bad"].status == 400
    assert "no such grammar: nonsense" in world.rejected["bad"].message
    assert world.tokens["good"] == expected_tokens(range(9), 4)


def test_a_grammar_that_takes_long_to_compile_holds_up_nobody_else() -> None:
    world = World()
    world.send("slow", range(9), grammar="slow")
    world.send("quick", [8] * 9)
    while "quick" not in world.finish:
        world.step()
    assert world.scheduler.only_waits
    even = world.grammars.compile("even")
    world.grammars.slow[0].set_result(even.result())
    world.run()
    assert world.tokens["slow"] == even_tokens(list(range(9)), 4)


def test_an_abort_while_the_grammar_is_compiled_is_answered_at_once() -> None:
    world = World()
    world.send("slow", range(9), grammar="slow")
    world.abort("slow")
    world.step()
    assert world.finish["slow"] is FinishReason.ABORT
    assert world.scheduler.is_idle


@pytest.mark.parametrize("when", range(8))
def test_an_abort_while_the_grammar_is_compiled_leaves_the_others_alone(when: int) -> None:
    world = World(pages=24, chunked_prefill_size=8)
    running = {"free": "", "even": "even", "forced": "3:5 6 7 8 9 …"}
    for rid, grammar in running.items():
        world.send(rid, range(9), max_new_tokens=12, grammar=grammar or None)
    world.send("slow", range(9), max_new_tokens=12, grammar="slow")
    world.send("other", range(9), max_new_tokens=12, grammar="slow")
    for _ in range(when):
        world.step()
        world.check_ownership()
    world.abort("slow")
    world.step()
    assert world.finish["slow"] is FinishReason.ABORT
    of_aborted, future = world.grammars.slow
    assert of_aborted.cancelled(), "nobody needs to compile it"
    future.set_result(world.grammars.compile("even").result())
    while not world.scheduler.is_idle:
        world.step()
        world.check_ownership()
    forced = [*expected_tokens(range(9), 3), 5, 6, 7, 8, 9]
    forced += expected_tokens([*range(9), *forced], 4)
    evens = even_tokens(list(range(9)), 12)
    free = expected_tokens(range(9), 12)
    given = {"free": free, "even": evens, "forced": forced, "slow": [], "other": evens}
    assert world.tokens == given


def test_grammars_and_free_requests_in_one_crowd_get_what_they_get_alone() -> None:
    world = World(pages=40, page_size=2, chunked_prefill_size=16, max_running=5)
    expected: dict[str, list[int]] = {}
    for index in range(24):
        rid, prompt = f"r{index}", [*range(index % 5), index % VOCAB, 3]
        match index % 3:
            case 0:
                world.send(rid, prompt, max_new_tokens=6)
                expected[rid] = expected_tokens(prompt, 6)
            case 1:
                world.send(rid, prompt, max_new_tokens=6, grammar="even")
                expected[rid] = even_tokens(prompt, 6)
            case _:
                world.send(rid, prompt, max_new_tokens=20, grammar="2:5 6 7 8 9")
                expected[rid] = [*expected_tokens(prompt, 2), 5, 6, 7, 8, 9]
        world.step()
    world.run()
    assert world.tokens == expected
