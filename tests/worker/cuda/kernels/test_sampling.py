"""The Triton kernel that draws tokens: in the interpreter against float64, and in the sampler."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.cuda.sampling import draw_tokens
from pando_worker.runner.sampling.ops import SamplingOps
from pando_worker.runner.sampling.sampler import sample
from tests.examples import examples
from tests.gpu.test_sampling import ROWS, params
from tests.worker.cuda.kernels.drawing import drawn
from tests.worker.cuda.kernels.poisoned import Poisoned

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the kernel")


# Weights of float32: with a random number near 0 the first that is not 0 is drawn.
SMALLEST = (0.0, 2.0**-149, 2.0**-126)

LIMITS = st.tuples(
    st.sampled_from([0.0, 0.01, 0.7, 1.0, 5.0]),
    st.sampled_from([0, 0, 1, 2, 40, 10**6]),
    st.sampled_from([1.0, 1.0, 0.9, 0.5, 1e-6]),
    st.sampled_from([0.0, 0.0, 0.05, 1.0]),
    st.floats(0, 1 - 2**-40),
)


@settings(max_examples=examples(60), deadline=None)
@given(
    rows=st.lists(LIMITS, min_size=1, max_size=3),
    vocabulary=st.sampled_from([1, 2, 97, 2048, 2049, 4500]),
    kind=st.sampled_from(["normal", "flat", "steps", "masked", "forbidden", "NaN", "infinite"]),
    seed=st.integers(0, 999),
)
def test_tokens_are_those_of_sorted_sums(
    rows: list[tuple[float, float, float, float, float]], vocabulary: int, kind: str, seed: int
) -> None:
    """Up to rounding: of the limits by 10^-5. With memory around all arrays."""
    torch.manual_seed(seed)
    values = torch.randn(len(rows), vocabulary) * 3 + 5
    match kind:
        case "flat":
            values.mul_(1e-3)
        case "steps":  # many are equal
            values.round_()
        case "masked":
            values[torch.rand(values.shape) < 0.9] = -torch.inf
        case "forbidden":
            values[0] = -torch.inf
        case "NaN":
            values[0, -1] = torch.nan
        case "infinite":
            values[0, 0] = torch.inf
    # Rows of a wider array, whose rest must not be read.
    logits = Poisoned(torch.nn.functional.pad(values, (0, 3), value=torch.nan))
    limits = Poisoned(torch.tensor(rows, dtype=torch.float64).T.contiguous())
    got = draw_tokens(logits.tensor[:, :vocabulary], limits.tensor)
    assert got.dtype == torch.int64 and got.shape == (len(rows),)
    for each in (logits, limits):
        each.check()
    for token, own, (temperature, top_k, top_p, min_p, uniform) in zip(
        got.tolist(), values.double().numpy(), rows, strict=True
    ):
        near = (1.0, 1 - 1e-5, 1 + 1e-5)
        possible = {
            drawn(
                own,
                (
                    float(np.float32(temperature)),
                    top_k,
                    top_p if top_p == 1 else top_p * share,
                    float(np.float32(min_p)),
                    min(max(uniform + (number - 1), 0), 1 - 2**-40),
                ),
                least,
            )
            for share, number, least in product(near, near, SMALLEST)
        }
        assert token in possible, (token, possible)


def test_the_sampler_draws_the_same_tokens_by_the_kernel() -> None:
    logits = torch.randn(ROWS, 1000, generator=torch.Generator().manual_seed(0)) * 3
    limits = params(ROWS)
    by_kernel = sample(logits.clone(), limits, SamplingOps(draw=draw_tokens))
    assert torch.equal(by_kernel, sample(logits.clone(), limits))
