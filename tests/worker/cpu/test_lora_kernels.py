"""The kernels of adapters, compared with torch's operators."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.cpu.kernels import Kernels
from pando_worker.cpu.library import load_kernels
from pando_worker.cpu.ops import CpuOps
from pando_worker.models.lora.linear import add_lora
from tests.worker.adapters.random_adapters import draw


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_kernels_add_what_torch_adds(dtype: torch.dtype, data: st.DataObject) -> None:
    """For any widths, ranks, scales, places of pages, and any mix of tokens."""
    drawn = draw(data, dtype)
    expected, got = drawn.y.clone(), drawn.y.clone()
    add_lora(expected, drawn.x, drawn.site, drawn.step)
    CpuOps(Kernels(load_kernels()), 2, {}).add_lora(got, drawn.x, drawn.site, drawn.step)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(got[drawn.slots < 0], drawn.y[drawn.slots < 0])
