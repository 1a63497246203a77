"""The kernels of adapters, compared with torch's operators."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.adapters.layout import LayoutPlan
from pando_worker.cpu.kernels import Kernels
from pando_worker.cpu.library import load_kernels
from pando_worker.cpu.ops import CpuOps
from pando_worker.models.lora import (
    LoraMemory,
    LoraSite,
    LoraTokens,
    Packed,
    add_lora,
    runs_of,
    sorted_by_slot,
)

CPU = torch.device("cpu")
PAGES, SLOTS, MOST_RANK = 25, 5, 70


@given(data=st.data())
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_the_kernels_add_what_torch_adds(dtype: torch.dtype, data: st.DataObject) -> None:
    """For any widths, ranks, scales, places of pages, and any mix of tokens."""
    inputs = data.draw(st.integers(1, 200), "inputs")
    widths = data.draw(st.lists(st.integers(1, 150), min_size=1, max_size=3), "widths")
    ranks = [tuple(data.draw(st.integers(0, MOST_RANK)) for _ in widths) for _ in range(SLOTS)]
    slots = np.array(
        data.draw(st.lists(st.integers(-1, SLOTS - 1), min_size=1, max_size=70), "slots"),
        dtype=np.int32,
    )
    torch.manual_seed(data.draw(st.integers(0, 99), "seed"))
    site = _site(inputs, widths, dtype)
    free = torch.randperm(PAGES).tolist()
    for slot, of_sections in enumerate(ranks):
        count = -(-max(*of_sections, 1) // 16)
        packed = torch.randn(count, site.memory.layout.page_numbers, dtype=dtype)
        scales = tuple(torch.rand(len(widths)).tolist())
        site.memory.put(
            slot, [free.pop() for _ in range(count)], Packed(packed, of_sections, scales)
        )
    tokens, sorted_slots = sorted_by_slot(slots)
    step = LoraTokens(
        torch.from_numpy(np.append(tokens, np.zeros(3, dtype=np.int32))),  # some padding
        torch.from_numpy(np.append(sorted_slots, np.zeros(3, dtype=np.int32))),
        torch.tensor([len(tokens)], dtype=torch.int32),
        runs_of(sorted_slots),
    )
    x = torch.randn(len(slots), inputs + 4)[:, :inputs]
    y = torch.randn(len(slots), sum(widths))
    expected = y.clone()
    add_lora(expected, x, site, step)
    CpuOps(Kernels(load_kernels()), 2, {}).add_lora(y, x, site, step)
    torch.testing.assert_close(y, expected, rtol=1e-3, atol=1e-3)
    assert torch.equal(y[slots < 0], expected[slots < 0]), "rows of the base are untouched"


def _site(inputs: int, widths: list[int], dtype: torch.dtype) -> LoraSite:
    plan, first = LayoutPlan(), 0
    for width in widths:
        plan.add(
            f"section {first}",
            inputs=inputs,
            outputs=width,
            taken_inputs=(0, inputs),
            taken_outputs=((0, width),),
            first_output=first,
        )
        first += width
    memory = LoraMemory(
        plan.layout(), slots=SLOTS, pages=PAGES, most_rank=MOST_RANK, dtype=dtype, device=CPU
    )
    memory.pages.fill_(torch.nan)  # unwritten memory must have no effect
    return LoraSite(memory, 0, memory.layout.sections)
