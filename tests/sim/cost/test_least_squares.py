"""The fit, compared with known coefficients and checked with projected gradients."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_sim.cost.least_squares import Floats, fit
from tests.examples import examples

SCALES = np.array([1e-3, 1e-5, 1e-9, 1e-8])


def designed(seed: int) -> Floats:
    """Observations of steps: one, tokens, contexts, rows."""
    random = np.random.default_rng(seed)
    return np.column_stack([np.ones(40), random.uniform(1, 1e-3 / SCALES[1:], (40, 3))])


@given(st.integers(0, 1000), st.lists(st.floats(0.1, 10), min_size=4, max_size=4))
def test_exact_observations_give_their_coefficients(seed: int, factors: list[float]) -> None:
    features, truth = designed(seed), SCALES * factors
    assert fit(features, features @ truth) == pytest.approx(truth, rel=1e-6)


def test_a_feature_that_makes_nothing_longer_gets_zero() -> None:
    features = designed(0)
    truth = np.array([1e-3, 1e-5, 0.0, 1e-8])
    assert fit(features, features @ truth) == pytest.approx(truth, rel=1e-6, abs=1e-18)


def test_a_feature_that_nothing_has_gets_zero() -> None:
    features = designed(0)
    features[:, 2] = 0
    assert fit(features, features @ SCALES)[2] == 0


def test_a_known_part_is_left_out_of_the_fit() -> None:
    features, known = designed(1), np.linspace(0, 1e-3, 40)
    assert fit(features, features @ SCALES + known, known) == pytest.approx(SCALES, rel=1e-6)


@settings(max_examples=examples(20))
@given(st.integers(0, 10_000))
def test_no_coefficients_without_a_sign_fit_noise_better(seed: int) -> None:
    random = np.random.default_rng(seed)
    features = designed(seed)
    # Some true values are below zero, so that the bound matters.
    truth = SCALES * random.uniform(-1, 2, 4)
    observed = np.maximum(features @ truth + random.normal(0, 3e-4, 40), 1e-5)
    rows = (features * SCALES) / observed[:, None]
    found = fit(features, observed) / SCALES
    assert found.min() >= 0
    # The problem is convex: if no allowed direction decreases it, this is the minimum.
    gradient = rows.T @ (rows @ found - 1)
    scale = np.abs(rows.T).sum(axis=1)
    assert np.all(gradient >= -1e-6 * scale)
    assert np.all(np.abs(gradient[found > 0]) <= 1e-6 * scale[found > 0])
