"""The sampler against transformers' logits processors, which give each token its probability."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from pando_worker.runner.batch import SamplingBatch
from pando_worker.runner.sampler import gumbel_noise, sample

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


def probabilities(params: Params) -> Tensor:
    warpers = LogitsProcessorList([TemperatureLogitsWarper(params.get("temperature", 1.0))])
    if "top_k" in params:
        warpers.append(TopKLogitsWarper(int(params["top_k"])))
    if "top_p" in params:
        warpers.append(TopPLogitsWarper(params["top_p"]))
    if "min_p" in params:
        warpers.append(MinPLogitsWarper(params["min_p"]))
    ids = torch.zeros(1, 1, dtype=torch.int64)
    warped: Tensor = warpers(ids, LOGITS[None])
    return warped.softmax(-1)[0]


def chi_square_limit(freedom: int) -> float:
    """What four standard deviations allow (Wilson and Hilferty's approximation)."""
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


def test_greedy_takes_the_best_whatever_else_is_set() -> None:
    rows = [{"temperature": 0.0, "top_p": 0.5, "seed": i} for i in range(4)]
    logits = torch.randn(4, VOCAB)
    assert sample(logits, batch(rows)).tolist() == logits.argmax(-1).tolist()


def test_a_request_draws_the_same_token_in_any_batch() -> None:
    """Also beside rows that sort, that do not, and that are greedy."""
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


def test_noise_is_the_published_hashes() -> None:
    """Against the same generators written with Python's integers."""
    mask32, mask64 = 2**32 - 1, 2**64 - 1

    def splitmix(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) & mask64
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask64
        x = (x ^ x >> 27) * 0x94D049BB133111EB & mask64
        return x ^ x >> 31

    def murmur(x: int) -> int:
        x = (x ^ x >> 16) * 0x85EBCA6B & mask32
        x = (x ^ x >> 13) * 0xC2B2AE35 & mask32
        return x ^ x >> 16

    assert splitmix(0) == 0xE220A8397B1DCDAF  # the published first output from seed 0
    seeds, steps = [0, -1, 2**62 + 12345], [0, 7, 2**40]
    noise = gumbel_noise(np.array(seeds), np.array(steps), 50, torch.device("cpu"))
    for row, (seed, step) in enumerate(zip(seeds, steps, strict=True)):
        key = splitmix((splitmix(seed & mask64) + step) & mask64)
        for token in range(50):
            bits = murmur(murmur(token ^ key & mask32) ^ key >> 32) & 0x7FFFFFFF
            expected = -math.log(-math.log1p(-(bits + 0.5) / 2**31))
            assert noise[row, token] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_noise_has_the_moments_of_a_standard_gumbel_and_no_neighbours_in_common() -> None:
    grid = np.arange(200)
    noise = gumbel_noise(np.repeat(grid, 2), np.tile([0, 1], 200), 5000, torch.device("cpu"))
    assert noise.isfinite().all()
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.005)
    assert float(noise.var()) == pytest.approx(math.pi**2 / 6, abs=0.01)
    correlations = torch.corrcoef(noise).fill_diagonal_(0)
    assert float(correlations.abs().max()) < 6 / math.sqrt(5000)
