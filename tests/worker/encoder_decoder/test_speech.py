"""Whisper's rules, log-probabilities and probes in the engine, against transformers' processors."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from transformers import (
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)

from pando_worker.messages import LogprobsWanted, Probe, SpeechRules
from tests.worker.encoder_decoder.checkpoints import START, Inputs, SourceReference, whisper
from tests.worker.encoder_decoder.engines import Worlds, ask, engines_of

END, FIRST, COUNT = 60, 80, 14
RULES = SpeechRules(
    end_token=END,
    suppressed=(5, 6, FIRST - 1, *range(END + 1, FIRST)),
    suppressed_first=(END, 10),
    first_timestamp=FIRST,
    max_initial=20,
)
PROMPT = [START, 61, 62]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> SourceReference:
    return whisper(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def worlds(reference: SourceReference) -> Iterator[Worlds]:
    with engines_of(reference.path) as worlds:
        yield worlds


def filtered(logits: Tensor, tokens: list[int], rules: SpeechRules) -> Tensor:
    """Log-probabilities by transformers' processors."""
    ids, scores, begin = torch.tensor([tokens]), logits[None], len(PROMPT)
    scores = SuppressTokensLogitsProcessor(list(rules.suppressed))(ids, scores)
    scores = SuppressTokensAtBeginLogitsProcessor(list(rules.suppressed_first), begin)(ids, scores)
    if rules.first_timestamp is not None:
        config = SimpleNamespace(
            no_timestamps_token_id=FIRST - 1,
            eos_token_id=END,
            bos_token_id=END,
            max_initial_timestamp_index=rules.max_initial,
        )
        stamps = WhisperTimeStampLogitsProcessor(config, begin)
        scores = stamps(ids, scores)
    logprobs: Tensor = scores[0].log_softmax(dim=-1)
    return logprobs


def by_transformers(
    reference: SourceReference, source: Inputs, rules: SpeechRules
) -> tuple[list[int], list[float]]:
    tokens, logprobs = list(PROMPT), []
    for _ in range(COUNT):
        scores = filtered(reference.logits(source, tokens)[-1], tokens, rules)
        tokens.append(int(scores.argmax()))
        logprobs.append(float(scores.max()))
    return tokens[len(PROMPT) :], logprobs


@pytest.mark.parametrize("first_timestamp", [FIRST, None])
@pytest.mark.parametrize("pages", [256, 32])
def test_tokens_and_log_probabilities_follow_the_rules(
    reference: SourceReference, worlds: Worlds, first_timestamp: int | None, pages: int
) -> None:
    """In one batch with requests without rules; with few pages, retracted and continued."""
    world = worlds(pages=pages, watermark=0.0, new_token_ratio=0.1)
    rules = SpeechRules(
        end_token=END,
        suppressed=RULES.suppressed,
        suppressed_first=RULES.suppressed_first,
        first_timestamp=first_timestamp,
        max_initial=20,
    )
    sources = [reference.source(seed) for seed in range(3)]
    for index, source in enumerate(sources):
        wanted = LogprobsWanted()
        ask(world, f"ruled{index}", source, PROMPT, COUNT, rules=rules, logprobs=wanted)
        ask(world, f"free{index}", source, PROMPT, COUNT, logprobs=wanted)
    world.run()
    for index, source in enumerate(sources):
        tokens, logprobs = by_transformers(reference, source, rules)
        assert world.tokens[f"ruled{index}"] == tokens
        found = [each.logprob for each in world.logprobs[f"ruled{index}"]]
        assert found == pytest.approx(logprobs, abs=1e-4)
        assert world.tokens[f"free{index}"] == reference.greedy(source, PROMPT, COUNT)
        if first_timestamp is not None:
            stamps = [token for token in tokens if token >= FIRST]
            assert stamps and stamps == sorted(stamps)


def test_a_resumed_output_continues_by_the_rules(
    reference: SourceReference, worlds: Worlds
) -> None:
    world, source = worlds(), reference.source(1)
    tokens, _ = by_transformers(reference, source, RULES)
    ask(world, "resumed", source, [*PROMPT, *tokens[:5]], COUNT, rules=RULES, num_output=5)
    world.run()
    assert world.tokens["resumed"] == tokens[5:]


def test_a_probe_tells_how_likely_tokens_are_behind_one_of_the_prompt(
    reference: SourceReference, worlds: Worlds
) -> None:
    """Also when the prompt was cached, in chunks, and beside others."""
    world, source = worlds(chunked_prefill_size=4), reference.source(2)
    prompt = [START, *range(20, 43)]
    expected = reference.logits(source, prompt).log_softmax(dim=-1)
    for rid, at, ids in (("a", 0, (7, 8, 9)), ("b", 11, (1,)), ("c", 23, (30, 31)), ("d", 0, (7,))):
        ask(world, rid, source, prompt, 2, probe=Probe(position=at, token_ids=ids))
        if rid == "a":
            world.run()  # the others find it cached
    world.run()
    for rid, at, ids in (("a", 0, (7, 8, 9)), ("b", 11, (1,)), ("c", 23, (30, 31)), ("d", 0, (7,))):
        wanted = [float(expected[at, token]) for token in ids]
        assert world.probed[rid] == pytest.approx(wanted, abs=1e-4)
        assert world.tokens[rid] == reference.greedy(source, prompt, 2)
