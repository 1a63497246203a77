"""Every family of models compared with transformers, on tiny random checkpoints in float32."""

import pytest
import torch
from torch import Tensor

from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.paged import BareModel, Row, assert_hits_change_no_distribution

PROMPTS = [prompt(length, seed=length) for length in (1, 9, 22, 2)]


def bare(family: Reference, page_size: int = 4, dtype: torch.dtype = torch.float32) -> BareModel:
    return BareModel(family.path, page_size, dtype=dtype, context_length=family.context_length)


def assert_same(logits: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(logits, expected, atol=2e-4, rtol=2e-4)


def test_logits_equal_those_of_transformers(family: Reference) -> None:
    """For a prefill and decodes after it, one of them after a cache hit."""
    model, rows = bare(family), [Row(list(tokens)) for tokens in PROMPTS]
    expected = [family.all_logits(row.tokens) for row in rows]
    assert_same(model.run(rows), torch.cat(expected))
    for token in (5, 8):
        for row in rows:
            row.tokens.append(token)
        expected = [family.logits(row.tokens)[None] for row in rows]
        assert_same(model.run(rows), torch.cat(expected))


@pytest.mark.parametrize(("page_size", "chunk"), [(1, 7), (4, 1), (16, 100)])
def test_greedy_tokens_equal_those_of_transformers_in_any_batch(
    family: Reference, page_size: int, chunk: int
) -> None:
    tokens = bare(family, page_size).greedy(PROMPTS, 8, chunk)
    assert tokens == [family.greedy(prompt, 8) for prompt in PROMPTS]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_cache_hit_does_not_change_the_distribution(
    family: Reference, dtype: torch.dtype
) -> None:
    assert_hits_change_no_distribution(bare(family, page_size=4, dtype=dtype), prompt(47, seed=1))


def test_rows_that_share_pages_go_their_own_ways(family: Reference) -> None:
    model, first = bare(family, page_size=4), Row(prompt(30))
    model.run([first])
    branches = [
        model.pages.fork(first, first.tokens[:20] + prompt(n, seed=n), pages=5) for n in (1, 9)
    ]
    first.tokens.append(3)
    rows = [first, *branches]
    logits = torch.split(model.run(rows), [1, 1, 9])
    for row, own in zip(rows, logits, strict=True):
        assert_same(own[-1], family.logits(row.tokens))
