"""The arithmetic of a cost model, compared with its formula step by step."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_sim.cost import CostModel, load, shipped, tick
from pando_sim.cost.model import TICKS_PER_S

MODELS = [load(name) for name in shipped()]
models = st.sampled_from(MODELS)
rows = st.integers(1, 2048)


@given(models, st.integers(0, 200), rows, st.integers(1, 5_000_000))
def test_many_decode_steps_take_exactly_as_long_as_single_ones(
    model: CostModel, steps: int, decodes: int, context: int
) -> None:
    contexts = (context + number * decodes for number in range(steps))
    single = [model.step_s(decodes=decodes, decode_context=each) for each in contexts]
    assert model.decode_steps(steps, decodes, context) == single


@given(
    models, st.integers(0, 8192), st.integers(0, 10**9), st.integers(0, 512), st.integers(0, 10**6)
)
def test_a_step_takes_what_its_formula_says(
    model: CostModel, tokens: int, seen: int, decodes: int, context: int
) -> None:
    cost = {
        name: Fraction(getattr(model.file.step, name)) for name in model.file.step.__struct_fields__
    }
    expected = cost["step_s"]
    expected += cost["token_s"] * max(Fraction(0), tokens + decodes - cost["free_tokens"])
    if tokens:
        expected += cost["prefill_step_s"] + cost["prefill_context_s"] * seen
    expected += cost["decode_row_s"] * decodes + cost["decode_context_s"] * context
    told = model.step_s(tokens, seen, decodes, context)
    # Half a tick for the step, and half a tick per token of the context.
    assert abs(Fraction(told) - expected) <= Fraction(context + 2) / (2 * Fraction(TICKS_PER_S))
    assert told > 0
    assert (told * TICKS_PER_S).is_integer()


@pytest.mark.parametrize("model", MODELS, ids=shipped())
def test_rounding_a_coefficient_changes_less_than_a_hundredth(model: CostModel) -> None:
    exact = model.file.step.decode_context_s
    assert tick(exact) == pytest.approx(exact, rel=0.01)


@given(models, st.integers(0, 100_000))
def test_a_request_takes_longer_the_longer_its_prompt_is(model: CostModel, tokens: int) -> None:
    assert 0 <= model.request_s(tokens) <= model.request_s(tokens + 1)
