"""Biases, penalties and masks, compared with transformers, vLLM's formula in loops, and bits."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import RepetitionPenaltyLogitsProcessor

from pando_worker.batch import LogitBias, Penalties
from pando_worker.runner.sampling.edits import add_bias, apply_mask, penalize
from pando_worker.runner.sampling.histories import Histories, most_bytes
from pando_worker.runner.sampling.sampler import sample
from tests.worker.model.paged import greedy

VOCAB = 40


@dataclass
class History:
    """A row's earlier tokens and its penalties."""

    prompt: list[int] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0


def penalties(rows: dict[int, History]) -> Penalties:
    tokens = [[*row.prompt, *row.output] for row in rows.values()]
    outputs = [[False] * len(row.prompt) + [True] * len(row.output) for row in rows.values()]
    return Penalties(
        samples=np.array(list(rows), dtype=np.int64),
        presence=np.array([row.presence for row in rows.values()], dtype=np.float32),
        frequency=np.array([row.frequency for row in rows.values()], dtype=np.float32),
        repetition=np.array([row.repetition for row in rows.values()], dtype=np.float32),
        rows=np.array(list(rows), dtype=np.int64),
        begins=np.ones(len(rows), dtype=np.bool_),
        tokens=np.array([*chain(*tokens)], dtype=np.int64),
        token_row=np.repeat(np.arange(len(rows)), [len(row) for row in tokens]),
        is_output=np.array([*chain(*outputs)], dtype=np.bool_),
    )


def penalized(logits: Tensor, rows: dict[int, History]) -> Tensor:
    wanted = penalties(rows)
    changed = logits.clone()
    histories = Histories(8, 128, torch.device("cpu"))
    penalize(changed, wanted, histories.add(wanted, torch.from_numpy(wanted.tokens), VOCAB))
    return changed


def by_the_formula(logits: Tensor, rows: dict[int, History]) -> Tensor:
    """vLLM's formula, one token at a time in float64."""
    expected = logits.double()
    for sample_row, row in rows.items():
        for token in {*row.prompt, *row.output}:
            old = expected[sample_row, token]
            expected[sample_row, token] = old / row.repetition if old > 0 else old * row.repetition
        for token in set(row.output):
            expected[sample_row, token] -= row.frequency * row.output.count(token) + row.presence
    return expected.float()


def random_logits(rows: int, vocab: int = VOCAB) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(2)) * 3


TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=60)
PENALTY = st.sampled_from([0.0, -2.0, -0.3, 0.7, 2.0])


@given(
    st.dictionaries(
        st.integers(0, 4),
        st.builds(History, TOKENS, TOKENS, PENALTY, PENALTY, st.sampled_from([1.0, 0.5, 1.2, 2.0])),
        min_size=1,
    )
)
def test_penalties_are_vllms_formula(rows: dict[int, History]) -> None:
    logits = random_logits(5)
    torch.testing.assert_close(
        penalized(logits, rows), by_the_formula(logits, rows), atol=1e-4, rtol=1e-5
    )


@given(data=st.data())
def test_histories_that_grow_token_by_token_are_the_whole_ones(data: st.DataObject) -> None:
    """Rows begin, get a token in some steps, and begin again as another request."""
    histories = Histories(6, 128, torch.device("cpu"))
    rows: dict[int, History] = {}
    for _ in range(data.draw(st.integers(1, 8))):
        here = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=6, unique=True))
        parts: list[tuple[list[int], list[bool]]] = []
        begins = [row not in rows or data.draw(st.integers(0, 3)) == 0 for row in here]
        for row, is_new in zip(here, begins, strict=True):
            if is_new:
                rows[row] = each = data.draw(
                    st.builds(
                        History, TOKENS, TOKENS, PENALTY, PENALTY, st.sampled_from([1.0, 1.2])
                    )
                )
                kinds = [False] * len(each.prompt) + [True] * len(each.output)
                parts.append(([*each.prompt, *each.output], kinds))
            else:
                token = data.draw(st.integers(0, VOCAB - 1))
                rows[row].output.append(token)
                parts.append(([token], [True]))
        whole = penalties({row: rows[row] for row in here})
        added = replace(
            whole,
            samples=np.arange(len(here)),
            rows=np.array(here),
            begins=np.array(begins),
            tokens=np.array([*chain(*(tokens for tokens, _ in parts))], dtype=np.int64),
            token_row=np.repeat(np.arange(len(here)), [len(tokens) for tokens, _ in parts]),
            is_output=np.array([*chain(*(kinds for _, kinds in parts))], dtype=np.bool_),
        )
        logits = random_logits(len(here))
        changed = logits.clone()
        history = histories.add(added, torch.from_numpy(added.tokens), VOCAB)
        penalize(changed, added, history)
        expected = by_the_formula(logits, {i: rows[row] for i, row in enumerate(here)})
        torch.testing.assert_close(changed, expected, atol=1e-4, rtol=1e-5)


def test_histories_take_what_the_pool_leaves_for_them_and_nothing_without_penalties() -> None:
    histories = Histories(8, 64, torch.device("cpu"))
    assert histories.num_bytes == 0
    for rows in (1, 8):
        wanted = penalties({row: History([5] * 30, [6] * 34, 1.0) for row in range(rows)})
        histories.add(wanted, torch.from_numpy(wanted.tokens), VOCAB)
        assert histories.num_bytes == most_bytes(8, 64) == 8 * 64 * 4


@pytest.mark.parametrize("repetition", [0.6, 1.0, 1.3])
def test_repetition_penalty_is_that_of_transformers(repetition: float) -> None:
    logits, prompt, output = random_logits(1), [3, 7, 7, 12], [7, 30, 3]
    processor = RepetitionPenaltyLogitsProcessor(repetition)
    expected = processor(torch.tensor([[*prompt, *output]]), logits.clone())
    rows = {0: History(prompt, output, repetition=repetition)}
    torch.testing.assert_close(penalized(logits, rows), expected)


def test_rows_without_penalties_stay_as_they_are() -> None:
    logits = random_logits(3)
    changed = penalized(logits, {1: History([1, 2], [2], 1.0, 1.0, 1.5)})
    assert torch.equal(changed[[0, 2]], logits[[0, 2]])
    assert not torch.equal(changed[1], logits[1])


def test_biases_of_one_token_add_up_and_minus_infinity_forbids() -> None:
    logits = random_logits(3)
    changed, expected = logits.clone(), logits.clone()
    add_bias(
        changed,
        LogitBias(
            samples=np.array([0, 2, 2, 1]),
            tokens=np.array([5, 5, 5, 9]),
            values=np.array([1.5, -4.0, 1.0, -np.inf], dtype=np.float32),
        ),
    )
    expected[0, 5] += 1.5
    expected[2, 5] -= 3.0
    expected[1, 9] = -torch.inf
    torch.testing.assert_close(changed, expected)


def mask_of(allowed: Sequence[set[int]], vocab: int) -> np.ndarray:
    words = np.zeros((len(allowed), -(-vocab // 32)), dtype=np.uint32)
    for row, tokens in zip(words, allowed, strict=True):
        for token in tokens:
            row[token // 32] |= np.uint32(1 << token % 32)
    return words.view(np.int32)


@pytest.mark.parametrize("vocab", [31, 32, 33, 100, 128])
def test_a_mask_leaves_the_tokens_whose_bits_are_set(vocab: int) -> None:
    random = np.random.default_rng(vocab)
    allowed = [set(np.flatnonzero(random.random(vocab) < p).tolist()) for p in (0, 0.5, 0.9, 1)]
    logits = random_logits(4, vocab)
    changed = logits.clone()
    apply_mask(changed, mask_of(allowed, vocab))
    for row, tokens in enumerate(allowed):
        assert set(changed[row].isfinite().nonzero()[:, 0].tolist()) == tokens
    assert torch.equal(changed[changed.isfinite()], logits[changed.isfinite()])


def test_a_row_that_may_yield_nothing_or_is_not_a_number_yields_minus_one() -> None:
    """Also if the mask hides the NaN."""
    logits = torch.zeros(4, VOCAB)
    logits[:, 7] = 3.0
    logits[2, 20] = torch.nan
    logits[3, 20] = torch.inf
    apply_mask(logits, mask_of([{7, 9}, set(), {7}, {7}], VOCAB))
    assert sample(logits, greedy(4)).tolist() == [7, -1, -1, -1]
