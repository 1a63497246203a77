"""The kernels of adapters, compared with torch's operators."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.adapters.layout import Layout, Section
from pando_worker.adapters.reading import Adapter, Pair
from pando_worker.cpu.kernels import Kernels
from pando_worker.cpu.library import load_kernels
from pando_worker.cpu.ops import CpuOps
from pando_worker.models.lora import (
    LoraMemory,
    LoraSite,
    LoraTokens,
    add_lora,
    runs_of,
    sorted_by_slot,
)
from pando_worker.runner.adapters.packing import pack

CPU = torch.device("cpu")
PAGES, SLOTS, MOST_RANK = 40, 5, 70


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
    layout = site.memory.layout
    free = torch.randperm(PAGES).tolist()
    for slot, of_sections in enumerate(ranks):
        adapter = Adapter(b"", _pairs(layout, of_sections), MOST_RANK)
        packed = pack(adapter, layout, dtype)
        site.memory.put(slot, [free.pop() for _ in packed.pages], packed)
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
    ends = np.cumsum(widths).tolist()
    layout = Layout(
        tuple(
            Section(
                f"section {end}",
                inputs=inputs,
                outputs=width,
                taken_inputs=(0, inputs),
                taken_outputs=((0, width),),
                first_output=end - width,
            )
            for width, end in zip(widths, ends, strict=True)
        )
    )
    memory = LoraMemory(
        layout, slots=SLOTS, pages=PAGES, most_rank=MOST_RANK, dtype=dtype, device=CPU
    )
    memory.pages.fill_(torch.nan)  # unwritten memory must have no effect
    return LoraSite(memory, 0, layout.sections)


def _pairs(layout: Layout, ranks: tuple[int, ...]) -> dict[str, Pair]:
    return {
        section.name: Pair(
            torch.randn(rank, section.inputs).numpy(),
            torch.randn(section.outputs, rank).numpy(),
            float(torch.rand(())),
        )
        for section, rank in zip(layout, ranks, strict=True)
        if rank
    }
