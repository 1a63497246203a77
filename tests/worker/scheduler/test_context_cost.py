"""The time of a prompt token behind a long context, estimated from the times of steps."""

import math
import random
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pando_worker.scheduler.batches.context_cost import ContextCost, attended

Floats = npt.NDArray[np.float64]

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
def test_its_fit_is_a_standard_error_worse_than_the_best(
    steps: list[tuple[int, int, float]],
) -> None:
    cost = ContextCost()
    tokens, contexts, times = [], [], []
    for count, start, factor in steps:
        context = attended(start, count)
        tokens.append(float(count))
        contexts.append(float(context))
        times.append(factor * _took(count, context))
        cost.add(count, context, times[-1])
    token, context_, took = np.array(tokens), np.array(contexts), np.array(times)
    scale = 1 / np.sqrt(token)  # its square is a step's weight

    def fit(*columns: Floats) -> tuple[Floats, Floats]:
        """The factors, and what the fit leaves of the times."""
        matrix = np.stack([np.ones(len(took)), *columns], axis=1) * scale[:, None]
        assume(np.linalg.cond(matrix / np.linalg.norm(matrix, axis=0)) < 1e3)  # steps differ
        factors = np.linalg.lstsq(matrix, took * scale)[0]
        return factors, took * scale - matrix @ factors

    best, left = fit(token, context_)
    least = _squares(left)
    allowed = least * (1 + 1 / (len(took) - 3))
    without_context = _squares(fit(token)[1])
    rounding = 1e-9 * _squares(took * scale)
    assume(abs(without_context - allowed) > rounding and min(abs(best[1:])) > 1e-9 * max(best))
    if best[1] <= 0 or best[2] <= 0 or without_context < allowed:
        assert cost.doubling_context == 0.0
        return
    found = cost.doubling_context
    assert found > 0.999 * best[1] / best[2]
    assert _squares(fit(token + context_ / found)[1]) == pytest.approx(
        allowed, rel=1e-4, abs=rounding
    )


def _squares(left: Floats) -> float:
    return float(left @ left)


# Where steps start and how many prompt tokens they have.
Starts = Callable[[random.Random], tuple[int, int]]
LOADS: dict[str, Starts] = {
    "long and short prompts": lambda chance: (0, chance.randrange(30, 1_800)),
    "a few tokens behind cached ones": lambda chance: (
        chance.randrange(1_500),
        chance.randrange(10, 60),
    ),
    "nearly equal steps, and one in twenty others": lambda chance: (
        (128, chance.randrange(38, 43))
        if chance.random() < 0.95
        else (chance.randrange(1_500), chance.randrange(10, 600))
    ),
}


def _of_a_small_model(load: Starts, steps: int, chance: random.Random, busy: float) -> float:
    """What is found, as a share of the truth, beside decodes and processes that delay each step."""
    cost = ContextCost()
    for _ in range(steps):
        start, count = load(chance)
        context = attended(start, count)
        alone_s = 3e-3 + 5e-5 * count + 5e-5 / 800 * context
        delay = math.exp(busy * abs(chance.gauss()))
        cost.add(count, context, alone_s * delay + busy * 2e-3 * chance.randrange(8))
    return cost.doubling_context / 800


@pytest.mark.parametrize("load", LOADS.values(), ids=list(LOADS))
def test_it_is_found_from_many_steps_of_a_small_model(load: Starts) -> None:
    chance = random.Random(1)
    found = sorted(_of_a_small_model(load, 2_000, chance, busy=0.1) for _ in range(10))
    assert found[len(found) // 2] == pytest.approx(1.0, rel=0.1)
    assert 0.8 < found[0] <= found[-1] < 1.3


@pytest.mark.parametrize("load", LOADS.values(), ids=list(LOADS))
def test_few_steps_on_a_busy_machine_never_make_context_dear(load: Starts) -> None:
    chance = random.Random(2)
    found = [_of_a_small_model(load, 100, chance, busy=0.5) for _ in range(300)]
    assert min(share for share in found if share > 0) > 0.1


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
