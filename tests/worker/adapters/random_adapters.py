"""A layer with random adapters in its slots, and random tokens for it, drawn by hypothesis."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from pando_worker.adapters.layout import Layout, Section
from pando_worker.adapters.reading import Adapter, Pair
from pando_worker.models.lora import LoraMemory, LoraSite, LoraTokens, runs_of, sorted_by_slot
from pando_worker.runner.adapters.packing import pack

PAGES, SLOTS, MOST_RANK = 40, 5, 70
_PADDING = 3  # tokens behind a step's, which must have no effect


@dataclass(frozen=True)
class Drawn:
    site: LoraSite
    step: LoraTokens
    slots: Tensor  # of all tokens, -1 for those of the base
    x: Tensor  # with rows that do not follow each other
    y: Tensor


def draw(data: st.DataObject, dtype: torch.dtype, of_x: torch.dtype = torch.float32) -> Drawn:
    """
    Args:
        dtype: of the adapters
        of_x: of the layer's inputs and outputs
    """
    inputs = data.draw(st.integers(1, 200), "inputs")
    widths = data.draw(st.lists(st.integers(1, 150), min_size=1, max_size=3), "widths")
    ranks = [tuple(data.draw(st.integers(0, MOST_RANK)) for _ in widths) for _ in range(SLOTS)]
    mix = data.draw(st.lists(st.integers(-1, SLOTS - 1), min_size=1, max_size=70), "slots")
    torch.manual_seed(data.draw(st.integers(0, 99), "seed"))
    site = _site(inputs, widths, dtype)
    layout = site.memory.layout
    free = torch.randperm(PAGES).tolist()
    for slot, of_sections in enumerate(ranks):
        packed = pack(Adapter(b"", _pairs(layout, of_sections), MOST_RANK), layout, dtype)
        site.memory.put(slot, [free.pop() for _ in packed.pages], packed)
    slots = np.array(mix, dtype=np.int32)
    tokens, in_order = sorted_by_slot(slots)
    padding = np.zeros(_PADDING, dtype=np.int32)
    step = LoraTokens(
        torch.from_numpy(np.append(tokens, padding)),
        torch.from_numpy(np.append(in_order, padding)),
        torch.tensor([len(tokens)], dtype=torch.int32),
        runs_of(in_order),
    )
    x = torch.randn(len(slots), inputs + 4).to(of_x)[:, :inputs]
    y = torch.randn(len(slots), sum(widths)).to(of_x)
    return Drawn(site, step, torch.from_numpy(slots), x, y)


def _site(inputs: int, widths: list[int], dtype: torch.dtype) -> LoraSite:
    ends = np.cumsum(widths).tolist()
    sections = tuple(
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
    memory = LoraMemory(
        Layout(sections),
        slots=SLOTS,
        pages=PAGES,
        most_rank=MOST_RANK,
        dtype=dtype,
        device=torch.device("cpu"),
    )
    memory.pages.fill_(torch.nan)  # unwritten memory must have no effect
    return LoraSite(memory, 0, sections)


def _pairs(layout: Layout, ranks: tuple[int, ...]) -> dict[str, Pair]:
    return {
        section.name: Pair(
            torch.randn(rank, section.inputs).numpy() / section.inputs**0.5,
            torch.randn(section.outputs, rank).numpy() / rank**0.5,
            float(torch.rand(())),
        )
        for section, rank in zip(layout, ranks, strict=True)
        if rank
    }
