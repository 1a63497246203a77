"""The sampler compared with the probabilities from transformers' logits processors."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from pando_worker.batch import SamplingBatch
from pando_worker.runner.sampling.sampler import sample, uniforms

Params = Mapping[str, float]

VOCAB = 24
LOGITS = torch.randn(VOCAB, generator=torch.Generator().manual_seed(1)) * 2
PARAMS: list[Params] = [
    {},
    {"temperature": 0.4},
    {"temperature": 3.0},
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 1000},
    {"top_p": 0.7},
    {"top_p": 0.01},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"top_k": 6, "top_p": 0.8},
    {"top_k": 12, "top_p": 0.95, "min_p": 0.05, "temperature": 1.7},
]
LARGE_PARAMS: list[Params] = [
    {},
    {"top_k": 3},
    {"top_k": 50},
    {"top_k": 1300},
    {"top_p": 0.3},
    {"top_p": 0.9},
    {"top_p": 0.999},
    {"min_p": 0.01},
    {"top_k": 700, "top_p": 0.97, "temperature": 0.8},
]


def batch(rows: Sequence[Params]) -> SamplingBatch:
    def column(name: str, default: float, dtype: type) -> Any:
        return np.array([row.get(name, default) for row in rows], dtype=dtype)

    return SamplingBatch(
        temperature=column("temperature", 1.0, np.float32),
        top_k=column("top_k", 0, np.int64),
        top_p=column("top_p", 1.0, np.float32),
        min_p=column("min_p", 0.0, np.float32),
        seed=column("seed", 0, np.int64),
        step=column("step", 0, np.int64),
    )


def probabilities(params: Params, logits: Tensor = LOGITS) -> Tensor:
    warpers = LogitsProcessorList([TemperatureLogitsWarper(params.get("temperature", 1.0))])
    if "top_k" in params:
        warpers.append(TopKLogitsWarper(int(params["top_k"])))
    if "top_p" in params:
        warpers.append(TopPLogitsWarper(params["top_p"]))
    if "min_p" in params:
        warpers.append(MinPLogitsWarper(params["min_p"]))
    ids = torch.zeros(1, 1, dtype=torch.int64)
    warped: Tensor = warpers(ids, logits[None])
    return warped.softmax(-1)[0]


def chi_square_limit(freedom: int) -> float:
    """The limit at four standard deviations (Wilson and Hilferty's approximation)."""
    if freedom == 0:
        return 0.0
    spread = 2 / (9 * freedom)
    return float(freedom * (1 - spread + 4 * math.sqrt(spread)) ** 3)


@pytest.mark.parametrize("vary", ["seed", "step"])
@pytest.mark.parametrize("params", PARAMS, ids=str)
def test_draws_follow_the_distribution_of_transformers(params: Params, vary: str) -> None:
    draws, expected = 20_000, probabilities(params)
    tokens = sample(
        LOGITS.expand(draws, -1).clone(), batch([{**params, vary: i} for i in range(draws)])
    )
    counts = torch.bincount(tokens, minlength=VOCAB)
    assert counts[expected == 0].sum() == 0, "a token was drawn that a filter removes"
    assert (counts[expected > 1e-3] > 0).all(), "a token that the filters keep was never drawn"

    likely = expected * draws >= 5
    goal = expected[likely] * draws
    chi_square = float(((counts[likely] - goal) ** 2 / goal).sum())
    assert chi_square <= chi_square_limit(int(likely.sum()) - 1)


@pytest.mark.parametrize("rows", [1, 40])
def test_greedy_takes_the_first_of_several_best(rows: int) -> None:
    """For any number of rows, which decides how they are searched."""
    logits = torch.zeros(rows, 1000)
    logits[:, [77, 300, 301, 999]] = 2.0
    assert sample(logits, batch([{"temperature": 0.0}] * rows)).tolist() == [77] * rows


def peaked(vocab_size: int) -> Tensor:
    """Logits like a model's: the n-th most likely token has a share of about n ** -1.5."""
    rank = torch.randperm(vocab_size, generator=torch.Generator().manual_seed(4)) + 1.0
    return -1.5 * rank.log()


def flat(vocab_size: int) -> Tensor:
    return torch.randn(vocab_size, generator=torch.Generator().manual_seed(5)) * 0.3


@pytest.mark.parametrize("shape", [peaked, flat])
@pytest.mark.parametrize("vocab_size", [100, 4096, 20_011])
@pytest.mark.parametrize("params", LARGE_PARAMS, ids=str)
def test_large_vocabularies_draw_what_the_probabilities_of_transformers_say(
    shape: Callable[[int], Tensor], vocab_size: int, params: Params
) -> None:
    """Each draw is where their cumulative sum exceeds the row's number, up to rounding."""
    draws, logits = 64, shape(vocab_size)
    held = probabilities(params, logits).double().cumsum(-1).numpy()
    numbers = uniforms(np.arange(draws), np.zeros(draws, dtype=np.int64))
    rows = batch([{**params, "seed": seed} for seed in range(draws)])
    tokens = sample(logits.expand(draws, -1).clone(), rows).numpy()
    above, below = held[tokens], np.where(tokens > 0, held[tokens - 1], 0.0)
    assert (above > below).all(), "a token was drawn that a filter removes"
    assert (numbers < above + 1e-5).all()
    assert (numbers > below - 1e-5).all()


@pytest.mark.parametrize("vocab_size", [100, 20_011])
def test_rows_that_filter_differently_do_not_disturb_each_other(vocab_size: int) -> None:
    """Also if some distributions are peaked and others flat, so that only some need a sort."""
    kinds = [*PARAMS, {"top_p": 0.9}, {"top_k": 900}, {"temperature": 0.0}]
    rows: list[Params] = [{**p, "seed": i} for i, p in enumerate([*kinds, *kinds])]
    logits = torch.stack([peaked(vocab_size)] * len(kinds) + [flat(vocab_size)] * len(kinds))
    together = sample(logits.clone(), batch(rows)).tolist()
    alone = [int(sample(logits[i : i + 1].clone(), batch([row]))) for i, row in enumerate(rows)]
    assert together == alone


def test_greedy_takes_the_best_whatever_else_is_set() -> None:
    rows = [{"temperature": 0.0, "top_p": 0.5, "seed": i} for i in range(4)]
    logits = torch.randn(4, VOCAB)
    assert sample(logits, batch(rows)).tolist() == logits.argmax(-1).tolist()


def test_a_request_draws_the_same_token_in_any_batch() -> None:
    """Also beside rows that need a sort, rows that do not, and greedy rows."""
    rows: list[Params] = [{**p, "seed": 7 - 3 * i, "step": i} for i, p in enumerate(PARAMS)]
    rows += [{"temperature": 0.0}, {"seed": -(2**63)}, {"seed": 2**63 - 1, "step": 2**31}]
    logits = torch.randn(len(rows), 1000, generator=torch.Generator().manual_seed(3))
    together = sample(logits, batch(rows)).tolist()
    alone = [int(sample(logits[i : i + 1], batch([row]))) for i, row in enumerate(rows)]
    backwards = sample(logits.flip(0), batch(rows[::-1])).tolist()[::-1]
    assert together == alone == backwards


def test_rows_without_a_finite_best_yield_minus_one_alone() -> None:
    logits = torch.zeros(6, VOCAB)
    logits[:, 3] = 9.0
    logits[1, 5] = torch.nan
    logits[2, 5] = torch.inf
    logits[3] = -torch.inf
    logits[4, 5] = -torch.inf  # merely forbidden
    for params in ({"temperature": 0.0}, {"top_k": 1}, {"min_p": 1.0}, {"top_p": 0.1}):
        assert sample(logits, batch([params] * 6)).tolist() == [3, -1, -1, -1, 3, 3]


def test_forbidden_tokens_are_never_drawn() -> None:
    logits = torch.zeros(500, VOCAB)
    logits[:, 2:] = -torch.inf
    drawn = sample(logits, batch([{"seed": i, "top_p": 0.99} for i in range(500)]))
    assert set(drawn.tolist()) == {0, 1}


def test_extreme_temperatures_are_the_limits() -> None:
    logits = LOGITS.expand(2000, -1)
    cold = sample(logits, batch([{"temperature": 1e-30, "seed": i} for i in range(2000)]))
    assert set(cold.tolist()) == {int(LOGITS.argmax())}
    hot = sample(logits, batch([{"temperature": 1e30, "seed": i} for i in range(2000)]))
    assert torch.bincount(hot, minlength=VOCAB).min() > 2000 / VOCAB / 2


def test_tokens_that_tie_at_the_threshold_all_stay() -> None:
    logits = torch.zeros(500, 4)
    logits[:, 3] = -9.0
    drawn = sample(logits, batch([{"seed": i, "top_k": 1} for i in range(500)]))
    assert set(drawn.tolist()) == {0, 1, 2}


@pytest.mark.parametrize("params", [{"top_k": 1}, {"top_p": 0.01}, {"top_p": 0.5}], ids=str)
def test_a_thousand_tokens_that_tie_for_the_best_all_stay(params: Params) -> None:
    """More than top-p looks at first, in a vocabulary too large to sort."""
    logits = torch.full((300, 20_000), -2.0)
    logits[:, 7::20] = 1.0
    drawn = sample(logits, batch([{**params, "seed": i} for i in range(300)])) - 7
    assert not (drawn % 20).any()
    assert len(set(drawn.tolist())) > 200


def test_a_top_p_next_to_one_keeps_all_and_next_to_nothing_the_best() -> None:
    logits = peaked(20_000).expand(200, -1)
    for top_p, most in ((1 - 2.0**-24, 200), (1e-30, 1)):
        rows = batch([{"top_p": top_p, "seed": i} for i in range(200)])
        drawn = sample(logits.clone(), rows)
        assert 1 <= len(set(drawn.tolist())) <= most
        assert (drawn >= 0).all()
    assert set(drawn.tolist()) == {int(logits[0].argmax())}


def test_no_rows_give_no_tokens() -> None:
    assert sample(torch.zeros(0, VOCAB), batch([])).tolist() == []


def test_numbers_are_the_published_hash() -> None:
    """Compared with splitmix64 in Python integers."""
    mask = 2**64 - 1

    def splitmix(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) & mask
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
        return x ^ x >> 31

    assert splitmix(0) == 0xE220A8397B1DCDAF  # the published first output from seed 0
    seeds, steps = [0, -1, 2**62 + 12345], [0, 7, 2**40]
    for seed, step, number in zip(
        seeds, steps, uniforms(np.array(seeds), np.array(steps)), strict=True
    ):
        assert number == (splitmix((splitmix(seed & mask) + step) & mask) >> 12) / 2**52


def test_numbers_are_uniform_and_neighbours_have_nothing_in_common() -> None:
    grid = np.arange(300)
    numbers = uniforms(np.repeat(grid, 300), np.tile(grid, 300)).reshape(300, 300)
    counts = np.bincount((numbers * 50).astype(int).reshape(-1), minlength=50)
    goal = numbers.size / 50
    assert ((counts - goal) ** 2 / goal).sum() <= chi_square_limit(49)
    for square in (numbers, numbers.T):
        correlations: NDArray[np.float64] = np.asarray(np.corrcoef(square))
        assert np.abs(correlations - np.eye(300)).max() < 6 / math.sqrt(300)
