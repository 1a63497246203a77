"""The Triton kernel for the products of experts: in the interpreter against torch."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.cuda.expert_product import expert_product
from tests.examples import examples
from tests.worker.cuda.kernels.poisoned import Poisoned

DTYPES = {torch.bfloat16: 2e-2, torch.float16: 2e-3}

in_interpreter = pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the kernel")


@in_interpreter
@pytest.mark.usefixtures("products_of_bfloat16")
@settings(max_examples=examples(30))
@given(
    counts=st.lists(st.sampled_from([0, 0, 1, 3, 16, 17, 33]), min_size=1, max_size=9),
    inputs=st.sampled_from([8, 16, 64, 72, 136]),
    outputs=st.sampled_from([8, 64, 72]),
    padding=st.sampled_from([0, 8]),
    dtype=st.sampled_from(list(DTYPES)),
    data=st.data(),
)
def test_each_row_is_multiplied_by_its_experts_weight(
    counts: list[int],
    inputs: int,
    outputs: int,
    padding: int,
    dtype: torch.dtype,
    data: st.DataObject,
) -> None:
    """With memory around the inputs, and between their rows, that must not be read."""
    torch.manual_seed(data.draw(st.integers(0, 99)))
    rows = sum(counts)
    x = Poisoned(torch.full((rows, inputs + padding), torch.nan, dtype=dtype))
    weight = Poisoned(torch.full((len(counts), outputs, inputs + padding), torch.nan, dtype=dtype))
    some_x, some_weight = x.tensor[:, :inputs], weight.tensor[..., :inputs]
    some_x.copy_(torch.randn(rows, inputs))
    some_weight.copy_(torch.randn(len(counts), outputs, inputs) / inputs**0.5)
    ends = Poisoned(torch.tensor(counts).cumsum(0).int())
    experts = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    expected = torch.einsum("ri,roi->ro", some_x.double(), some_weight.double()[experts])
    got = expert_product(some_x, some_weight, ends.tensor)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), expected, atol=DTYPES[dtype], rtol=DTYPES[dtype])
    for part in (x, weight, ends):
        part.check()


@in_interpreter
@pytest.mark.usefixtures("products_of_bfloat16")
def test_results_are_written_to_the_rows_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(21, 24).bfloat16()
    out = Poisoned(torch.zeros(21, 40, dtype=torch.bfloat16))
    new_empty = torch.Tensor.new_empty

    def poisoned(self: torch.Tensor, *shape: int, **options: Any) -> torch.Tensor:
        return out.tensor if shape == (21, 40) else new_empty(self, *shape, **options)

    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned)
    ends = torch.tensor([3, 3, 21], dtype=torch.int32)
    expert_product(x, torch.randn(3, 40, 24).bfloat16(), ends)
    out.check()
    assert (out.tensor.abs().sum(1) > 0).all()
