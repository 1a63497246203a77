"""Dynamic time warping, beside transformers' own code."""

import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from transformers.models.whisper.generation_whisper import _dynamic_time_warping

from pando_worker.audio.alignment import token_times, warping_path

MATRICES = arrays(
    np.float32,
    array_shapes(min_dims=2, max_dims=2, max_side=12),
    elements=st.integers(-3, 3).map(float) | st.floats(-5, 5, width=32),
)


@hypothesis_settings(deadline=None)
@given(MATRICES)
def test_the_path_is_that_of_transformers(weights: np.ndarray) -> None:
    costs = -weights.astype(np.float64)
    rows, columns = warping_path(costs)
    expected_rows, expected_columns = _dynamic_time_warping(costs)
    np.testing.assert_array_equal(rows, expected_rows)
    np.testing.assert_array_equal(columns, expected_columns)


def test_a_window_of_tokens_is_aligned_as_by_transformers() -> None:
    weights = np.random.default_rng(0).standard_normal((40, 300)).astype(np.float32)
    rows, columns = _dynamic_time_warping(-weights.astype(np.float64))
    jumps = np.pad(np.diff(rows), (1, 0), constant_values=1).astype(bool)
    expected = (columns[jumps] * 0.02).astype(np.float32)
    np.testing.assert_array_equal(token_times(weights), [*expected, expected[-1]])


def test_tokens_that_see_a_time_each_are_spoken_there() -> None:
    weights = np.full((4, 20), -1.0, np.float32)
    begins = [0, 5, 8, 9, 20]
    for row in range(4):
        weights[row, begins[row] : begins[row + 1]] = 1.0
    assert np.allclose(token_times(weights), [0.0, 0.1, 0.16, 0.18, 0.18])


def test_few_tokens_have_times() -> None:
    assert token_times(np.zeros((0, 50), np.float32)) == [0.0]
    assert token_times(np.full((1, 50), np.nan, np.float32)) == [0.0, 0.0]
