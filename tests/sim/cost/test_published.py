"""The shipped GPUs, compared with the table that they were fitted to."""

import pytest

from bench.simulator.published_costs import (
    FAMILIES,
    LENGTHS,
    Published,
    cost_files,
    errors,
    tokens_per_s,
)
from pando_sim.cost import load

PUBLISHED = {name: one for family in FAMILIES for name, one in family.items()}


@pytest.mark.parametrize(("name", "published"), PUBLISHED.items(), ids=PUBLISHED)
def test_a_saturated_gpu_produces_what_was_published(name: str, published: Published) -> None:
    off = errors(load(name), published)
    assert max(map(abs, off)) < 0.08, dict(zip(LENGTHS, off, strict=True))


def test_the_files_that_ship_are_those_that_the_fit_makes() -> None:
    for name, file in cost_files().items():
        assert load(name).file == file


def test_the_mean_step_of_a_saturated_engine_is_one_that_the_model_takes() -> None:
    name = "h100-llama-3.1-8b-fp8"
    published, model = PUBLISHED[name], load(name)
    steady = published.steady(1000, 1000)
    seconds = model.step_s(
        round(steady.tokens - steady.decodes),
        round(steady.prefill_context),
        round(steady.decodes),
        round(steady.decode_context),
    )
    assert steady.decodes / seconds == pytest.approx(
        tokens_per_s(model, published, 1000, 1000), rel=0.01
    )
