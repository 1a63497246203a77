"""A layer with random adapters in its slots, and random tokens for it, drawn by hypothesis."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from pando_worker.adapters.adapter import Adapter, Pair
from pando_worker.adapters.layout import Layout, Section
from pando_worker.models.lora.linear import (
    LoraMemory,
    LoraSite,
    LoraTokens,
    runs_of,
    sorted_by_slot,
)
from pando_worker.runner.adapters.packing import pack

PAGES, SLOTS, MOST_RANK = 60, 4, 70
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
    experts = data.draw(st.integers(1, 3), "experts")
    numbers = range(experts * len(widths))
    ranks = [tuple(data.draw(st.integers(0, MOST_RANK)) for _ in numbers) for _ in range(SLOTS)]
    mix = data.draw(st.lists(st.integers(-1, SLOTS - 1), min_size=1, max_size=70), "slots")
    torch.manual_seed(data.draw(st.integers(0, 99), "seed"))
    site = _site(inputs, widths, experts, dtype)
    layout = site.memory.layout
    free = torch.randperm(PAGES).tolist()
    for slot, of_sections in enumerate(ranks):
        packed = pack(Adapter(b"", _pairs(layout, of_sections), {}, memoryview(b"")), layout, dtype)
        site.memory.put(slot, [free.pop() for _ in packed.pages], packed)
    slots = np.array(mix, dtype=np.int32)
    of_token = torch.randint(0, experts, (len(slots),)).int().numpy()
    tokens, in_order = sorted_by_slot(np.where(slots < 0, -1, slots * experts + of_token))
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


def _site(inputs: int, widths: list[int], experts: int, dtype: torch.dtype) -> LoraSite:
    ends = np.cumsum(widths).tolist()
    sections = tuple(
        Section(
            f"section {end} of {expert}",
            inputs=inputs,
            outputs=width,
            taken_inputs=(0, inputs),
            taken_outputs=((0, width),),
            first_output=end - width,
        )
        for expert in range(experts)
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
    return LoraSite(memory, 0, sections[: len(widths)], experts)


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
