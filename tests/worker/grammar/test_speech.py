"""Whisper's rules, against the logits processors of transformers."""

from types import SimpleNamespace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperTimeStampLogitsProcessor,
)

from pando_worker.grammar.speech import SpeechGrammar
from pando_worker.messages import SpeechRules

VOCAB, END, FIRST = 70, 40, 50  # text, the end, other special tokens, and 20 time stamps
PROMPT = [41, 42]
RULES = SpeechRules(
    end_token=END,
    suppressed=(3, 4, FIRST - 1),
    suppressed_first=(7, END),
    first_timestamp=FIRST,
    max_initial=5,
)

TOKENS = st.lists(st.one_of(st.integers(0, 45), st.integers(FIRST, VOCAB - 1)), max_size=8)


def allowed_by_transformers(rules: SpeechRules, output: list[int]) -> list[int]:
    ids = torch.tensor([[*PROMPT, *output]])
    scores = torch.zeros(1, VOCAB)
    begin = len(PROMPT)
    scores = SuppressTokensLogitsProcessor(list(rules.suppressed))(ids, scores)
    scores = SuppressTokensAtBeginLogitsProcessor(list(rules.suppressed_first), begin)(ids, scores)
    if rules.first_timestamp is not None:
        config = SimpleNamespace(
            no_timestamps_token_id=FIRST - 1,
            eos_token_id=END,
            bos_token_id=END,
            max_initial_timestamp_index=rules.max_initial,
        )
        stamps = WhisperTimeStampLogitsProcessor(config, begin, False)
        scores = stamps(ids, scores)
    return torch.nonzero(scores[0] > -torch.inf)[:, 0].tolist()


def allowed(grammar: SpeechGrammar) -> list[int]:
    words = np.empty(-(-VOCAB // 32), dtype=np.int32)
    grammar.fill_mask(words)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    return [int(token) for token in np.flatnonzero(bits)]


@given(TOKENS, st.sampled_from([None, 0, 5]), st.booleans())
def test_the_next_tokens_are_those_of_transformers(
    output: list[int], max_initial: int | None, stamps: bool
) -> None:
    rules = SpeechRules(
        end_token=END,
        suppressed=RULES.suppressed,
        suppressed_first=RULES.suppressed_first,
        first_timestamp=FIRST if stamps else None,
        max_initial=max_initial,
    )
    grammar = SpeechGrammar(rules, VOCAB)
    for token in output:
        assert grammar.accept(token)
    assert allowed(grammar) == allowed_by_transformers(rules, output)


@given(TOKENS, TOKENS)
def test_a_rollback_restores_the_state(before: list[int], after: list[int]) -> None:
    grammar, other = SpeechGrammar(RULES, VOCAB), SpeechGrammar(RULES, VOCAB)
    for token in before:
        grammar.accept(token)
        other.accept(token)
    for token in after:
        grammar.accept(token)
    grammar.rollback(len(after))
    assert allowed(grammar) == allowed(other)
