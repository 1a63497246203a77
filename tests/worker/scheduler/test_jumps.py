"""Jump-forward with a real grammar: the hash model's tokens have text here, and forced text is
tokenized together with the token that was sampled before it."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from pando_worker.grammar.compiler import GrammarCompiler
from pando_worker.messages import FinishReason, LogprobsWanted
from pando_worker.scheduler.batches.constrained import MIN_JUMP
from pando_worker.server.jobs.constraints import grammar_of
from tests.waiting import PATIENCE_S
from tests.worker.scheduler.hash_model import VOCAB, expected_tokens, next_allowed
from tests.worker.scheduler.world import World

pytestmark = pytest.mark.usefixtures("overlap")

END = 0
# `n` and `s` merge with the following text; `t` and `q` do not.
MERGES = ["a m", "am e", "n ame", "s ame", "u e", ", Ġ", "Ġ a"]
PATTERN = r"([nst]ame|que) is: [ab]{1,2}(, and more; ([nst]ame|que) is: [ab]{1,2}){2}"
GRAMMAR = str(grammar_of(regex=PATTERN))
PROMPTS = {f"r{index}": [index % 5] * (3 + index % 4) + [index] for index in range(12)}


@dataclass(frozen=True)
class Expected:
    tokens: list[int]
    jumps: int
    recut: int  # jumps whose first token differs from the sampled one


class Truth:
    """A request's correct output: each token is the model's best under the mask, and each jump is
    tokenized by the tokenizer."""

    def __init__(self, grammars: GrammarCompiler, tokenizer: Tokenizer) -> None:
        self.grammars, self.tokenizer = grammars, tokenizer

    def output(self, prompt: Sequence[int], window: int | None = None) -> Expected:
        grammar = self.grammars.compile(GRAMMAR).result()
        tokens: list[int] = []
        jumps = recut = 0
        while not grammar.is_finished:
            words = np.zeros(-(-VOCAB // 32), dtype=np.int32)
            grammar.fill_mask(words)
            allowed = set(np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")))
            [best] = expected_tokens([*prompt, *tokens], 1, window)
            sampled = next_allowed(best, allowed.__contains__)
            assert grammar.accept(sampled)
            forced = grammar.fast_forward()
            if len(forced) < MIN_JUMP:
                tokens.append(sampled)
                continue
            assert all(map(grammar.accept, forced))
            text = self.tokenizer.decode([sampled, *forced])
            cut = self.tokenizer.encode(text, add_special_tokens=False).ids
            tokens += cut
            jumps, recut = jumps + 1, recut + (cut[0] != sampled)
        return Expected(tokens, jumps, recut)


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Truth]:
    letters = [*"abcdefghijklmnopqrstuvwxyz:;,Ġ"]
    names = ["<end>", *letters, *(merge.replace(" ", "") for merge in MERGES)]
    bpe = models.BPE(
        vocab={name: id for id, name in enumerate(names)},
        merges=[(first, second) for first, second in map(str.split, MERGES)],
    )
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    folder = tmp_path_factory.mktemp("model")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text("{}")
    with closing(GrammarCompiler(folder, VOCAB, [END])) as grammars:
        grammars.compile(GRAMMAR).result(timeout=PATIENCE_S)
        yield Truth(grammars, tokenizer)


def run(truth: Truth, prompts: dict[str, list[int]], **settings: Any) -> World:
    world = World(grammars=truth.grammars, **settings)
    for rid, prompt in prompts.items():
        world.send(rid, prompt, max_new_tokens=60, grammar=GRAMMAR)
    while not world.scheduler.is_idle:
        world.step()
        world.check_ownership()
    return world


def test_a_jump_cuts_the_forced_text_with_the_token_before_it(truth: Truth) -> None:
    jumps = recut = 0
    world = run(truth, PROMPTS)
    for rid, prompt in PROMPTS.items():
        expected = truth.output(prompt)
        assert world.tokens[rid] == expected.tokens
        assert world.finish[rid] is FinishReason.STOP
        assert re.fullmatch(PATTERN, truth.tokenizer.decode(expected.tokens))
        jumps, recut = jumps + expected.jumps, recut + expected.recut
    assert jumps > recut > len(PROMPTS)


def test_a_jump_saves_steps(truth: Truth) -> None:
    prompt = PROMPTS["r0"]
    expected = truth.output(prompt)
    world = run(truth, {"a": prompt})
    dropped = expected.jumps if world.settings.overlap_schedule else 0
    assert len(world.batches) < len(expected.tokens) - MIN_JUMP * expected.jumps + dropped


@pytest.mark.parametrize("page_size", [1, 4])
def test_what_a_jump_leaves_in_the_cache_is_right(truth: Truth, page_size: int) -> None:
    world = run(truth, PROMPTS, page_size=page_size, pages=1200 // page_size)
    for rid, prompt in PROMPTS.items():
        whole = [*prompt, *world.tokens[rid], 3]
        world.send(f"{rid} again", whole, max_new_tokens=5)
        world.run()
        assert world.cached[f"{rid} again"] >= len(whole) - 2 - page_size
        assert world.tokens[f"{rid} again"] == expected_tokens(whole, 5)


def test_jumps_survive_retractions_and_chunks(truth: Truth) -> None:
    settings = {"chunked_prefill_size": 8, "new_token_ratio": 0.01, "watermark": 0}
    world = run(truth, PROMPTS, pages=80, page_size=1, **settings)
    assert world.scheduler.stats().retracted_requests_total > 0
    assert world.tokens == {rid: truth.output(prompt).tokens for rid, prompt in PROMPTS.items()}


@pytest.mark.parametrize(("window", "page_size"), [(1, 2), (6, 2), (5, 1)])
def test_jumps_within_a_window(truth: Truth, window: int, page_size: int) -> None:
    world = run(truth, PROMPTS, page_size=page_size, pages=800, window=window, window_pages=80)
    for rid, prompt in PROMPTS.items():
        assert world.tokens[rid] == truth.output(prompt, window).tokens


def test_several_outputs_of_one_prompt_jump_alike(truth: Truth) -> None:
    world = run(truth, dict.fromkeys("abcd", PROMPTS["r1"]))
    assert list(world.tokens.values()) == [truth.output(PROMPTS["r1"]).tokens] * 4


def test_an_output_is_cut_at_its_limit_within_a_jump(truth: Truth) -> None:
    tokens = truth.output(PROMPTS["r2"]).tokens
    for limit in range(1, len(tokens), 3):
        world = World(grammars=truth.grammars)
        world.send("a", PROMPTS["r2"], max_new_tokens=limit, grammar=GRAMMAR)
        world.run()
        assert truth.tokenizer.decode(tokens).startswith(
            truth.tokenizer.decode(world.tokens["a"]).rstrip("�")
        )
        assert len(world.tokens["a"]) == limit
        assert world.finish["a"] is FinishReason.LENGTH


def test_an_abort_at_any_step_of_jumps_gives_all_pages_back(truth: Truth) -> None:
    steps = len(run(truth, {"a": PROMPTS["r3"]}).batches)
    for when in range(steps):
        world = World(grammars=truth.grammars)
        world.send("a", PROMPTS["r3"], max_new_tokens=60, grammar=GRAMMAR)
        world.send("b", PROMPTS["r4"], max_new_tokens=60, grammar=GRAMMAR)
        for _ in range(when):
            world.step()
        world.abort("a")
        while not world.scheduler.is_idle:
            world.step()
            world.check_ownership()
        expected = truth.output(PROMPTS["r3"]).tokens
        assert world.tokens["a"] == expected[: len(world.tokens["a"])]
        assert world.tokens["b"] == truth.output(PROMPTS["r4"]).tokens


def test_no_jump_where_every_token_is_to_have_its_log_probability(truth: Truth) -> None:
    """Tokens that are not sampled have none, so each one is sampled, under masks that force it."""
    world = World(grammars=truth.grammars)
    world.send("a", PROMPTS["r5"], 60, grammar=GRAMMAR, logprobs=LogprobsWanted())
    world.run()
    assert re.fullmatch(PATTERN, truth.tokenizer.decode(world.tokens["a"]))
    assert {len(batch.input_ids) for batch in world.batches[1:]} == {1}
    assert len(world.batches) >= len(world.tokens["a"])
