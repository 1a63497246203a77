"""The time of a prompt token behind a long context, estimated from the times of steps."""

import math
import random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pando_worker.scheduler.batches.context_cost import ContextCost, attended

CHUNK = 2_048
TOKEN_S, CONTEXT_S, STEP_S = 1e-5, 1e-9, 2e-3  # twice the time behind 10,000


@given(st.integers(0, 5000), st.integers(0, 50))
def test_prompt_tokens_see_all_before_them_and_themselves(start: int, count: int) -> None:
    assert attended(start, count) == sum(start + index + 1 for index in range(count))


def _steps(prompts: list[int]) -> list[tuple[int, int]]:
    """Tokens and context of each step that computes a chunk of one of the prompts."""
    chunks = [(start, prompt) for prompt in prompts for start in range(0, prompt, CHUNK)]
    counts = [(start, min(CHUNK, prompt - start)) for start, prompt in chunks]
    return [(count, attended(start, count)) for start, count in counts]


def _took(tokens: int, context: int) -> float:
    return STEP_S + TOKEN_S * tokens + CONTEXT_S * context


def test_it_is_found_from_steps_of_long_and_short_prompts() -> None:
    cost = ContextCost()
    for tokens, context in _steps([500, 9_000, 30_000, 1_300]):
        cost.add(tokens, context, _took(tokens, context))
    assert cost.doubling_context == pytest.approx(10_000, rel=1e-6)


def test_it_is_found_through_noise_and_stays() -> None:
    chance = random.Random(6)
    cost = ContextCost()
    found = []
    for tokens, context in _steps([chance.randrange(100, 40_000) for _ in range(200)]):
        # Decodes and other work vary the step's time by a quarter either way.
        cost.add(tokens, context, _took(tokens, context) * chance.uniform(0.75, 1.25))
        found.append(cost.doubling_context)
    late = found[len(found) // 2 :]
    assert max(late) / min(late) < 1.1
    assert late[-1] == pytest.approx(10_000, rel=0.1)


@given(
    st.lists(
        st.tuples(st.integers(1, CHUNK), st.integers(0, 50_000), st.floats(0.5, 2.0)),
        min_size=5,
        max_size=30,
    )
)
def test_it_is_the_least_squares_less_the_standard_error(
    steps: list[tuple[int, int, float]],
) -> None:
    cost = ContextCost()
    rows, times = [], []
    for count, start, factor in steps:
        context = attended(start, count)
        rows.append((1.0, count / CHUNK, context / (CHUNK * 50_000)))  # all of one size
        times.append(factor * _took(count, context))
        cost.add(count, context, times[-1])
    matrix, took = np.array(rows), np.array(times)
    squares = matrix.T @ matrix
    assume(np.linalg.cond(squares) < 1e6)  # the steps differ in both
    weights = np.linalg.solve(squares, matrix.T @ took)
    error = took - matrix @ weights
    variance = error @ error / (len(took) - 3) * np.linalg.inv(squares)[2, 2]
    token_s = weights[1] / CHUNK
    context_s = (weights[2] - math.sqrt(variance)) / (CHUNK * 50_000)
    assume(abs(context_s) > 1e-3 * abs(weights[2]) / (CHUNK * 50_000))  # near the limit of rounding
    wanted = token_s / context_s if token_s > 0 and context_s > 0 else 0.0
    assert cost.doubling_context == pytest.approx(wanted, rel=1e-4)


def test_steps_without_information_give_no_estimate() -> None:
    alike, few, free = ContextCost(), ContextCost(), ContextCost()
    for number in range(50):
        alike.add(CHUNK, attended(0, CHUNK), _took(CHUNK, attended(0, CHUNK)) + number * 1e-4)
    for tokens, context in _steps([CHUNK + 5, CHUNK])[:3]:
        few.add(tokens, context, _took(tokens, context))
    for tokens, context in _steps([500, 9_000, 30_000, 1_300]):
        free.add(tokens, context, STEP_S + TOKEN_S * tokens - 1e-15 * context)
    assert (alike.doubling_context, few.doubling_context, free.doubling_context) == (0.0, 0.0, 0.0)
    assert ContextCost().doubling_context == 0.0
