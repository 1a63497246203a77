"""What a step's tokens add to linear layers for their adapters (LoRA, arXiv:2106.09685).

Adapters lie in pages of device memory (`adapters/layout.py`). A slot refers to the pages of one
adapter, and has a rank and a scale for each section, that is each linear layer of the checkpoint.
A step's tokens are sorted by slot, so that those of one adapter are multiplied together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pando_worker.adapters.info import RANK_PAGE
from pando_worker.adapters.layout import Layout, Section
from pando_worker.batch import Int32
from pando_worker.tensors.huge_pages import advise_huge_pages


@dataclass(frozen=True, slots=True)
class LoraTokens:
    """The tokens of a step that run with an adapter.

    Attributes:
        tokens: int32 [n], their indices, sorted by slot
        slots: int32 [n], the slot of each
        count: int32 [1], how many of the n there are; the rest is padding
        runs: slot, first and end of each group of neighbours with one slot, for code that works on
            the host
    """

    tokens: Tensor
    slots: Tensor
    count: Tensor
    runs: Sequence[tuple[int, int, int]] = ()


def sorted_by_slot(slots: Int32) -> tuple[Int32, Int32]:
    """The tokens with an adapter, and their slots.

    Args:
        slots: [num_tokens], -1 for tokens of the base model
    """
    order = np.argsort(slots, kind="stable").astype(np.int32)
    order = order[np.searchsorted(slots[order], 0) :]
    return order, slots[order]


def runs_of(slots: Int32) -> list[tuple[int, int, int]]:
    """`LoraTokens.runs` of sorted slots."""
    if not len(slots):
        return []
    starts = np.flatnonzero(np.diff(slots, prepend=slots[0] - 1))
    ends = [*starts[1:].tolist(), len(slots)]
    return list(zip(slots[starts].tolist(), starts.tolist(), ends, strict=True))


def lora_bytes(layout: Layout, pages: int, dtype: torch.dtype) -> int:
    """Of device memory with this many pages."""
    return pages * layout.page_numbers * dtype.itemsize


@dataclass(frozen=True, slots=True)
class Packed:
    """An adapter in the form of one rank's device memory.

    Attributes:
        pages: [pages, numbers of a page]; ranks that the adapter lacks are not written
        ranks, scales: of each section
    """

    pages: Tensor
    ranks: tuple[int, ...]
    scales: tuple[float, ...]

    @property
    def nbytes(self) -> int:
        return self.pages.nbytes

    @property
    def numbers(self) -> memoryview:
        """The pages' bytes."""
        return memoryview(_bytes(self.pages).data)


class LoraMemory:
    """Device memory of adapters, and the tokens of the step that runs.

    Attributes:
        layout: of a page
        pages: [pages, numbers of a page]
        slot_pages: int32 [slots, most pages of an adapter], in the order of their ranks
        ranks: int32 [slots, sections], 0 where the slot's adapter has nothing
        scales: float32 [slots, sections]
        step: None if all tokens run the base model
    """

    def __init__(
        self,
        layout: Layout,
        *,
        slots: int,
        pages: int,
        most_rank: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.layout = layout
        self.most_rank = most_rank
        self.pages = torch.empty(pages, layout.page_numbers, dtype=dtype, device=device)
        if device.type == "cpu":
            advise_huge_pages(self.pages)
        sections, most = len(layout.sections), -(-most_rank // RANK_PAGE)
        self.slot_pages = torch.zeros(slots, most, dtype=torch.int32, device=device)
        self.ranks = torch.zeros(slots, sections, dtype=torch.int32, device=device)
        self.scales = torch.zeros(slots, sections, dtype=torch.float32, device=device)
        # The same for code on the host, which need not wait for the device.
        self.host_ranks: list[list[int]] = [[0] * sections for _ in range(slots)]
        self.host_scales: list[list[float]] = [[0.0] * sections for _ in range(slots)]
        self.host_pages: list[list[int]] = [[] for _ in range(slots)]
        self.step: LoraTokens | None = None
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @property
    def dtype(self) -> torch.dtype:
        return self.pages.dtype

    def put(self, slot: int, pages: Sequence[int], adapter: Packed) -> None:
        """Copy an adapter into pages, and let a slot refer to them. No step uses either now.

        On the CPU numpy copies: torch would use the cores that the model computes on.
        """
        if self._stream is not None:
            with torch.cuda.stream(self._stream):
                for page, numbers in zip(pages, adapter.pages, strict=True):
                    self.pages[page].copy_(numbers.pin_memory(), non_blocking=True)
                self._refer(slot, pages, adapter)
            self._stream.synchronize()
            return
        for page, numbers in zip(pages, adapter.pages, strict=True):
            np.copyto(_bytes(self.pages[page]), _bytes(numbers))
        self._refer(slot, pages, adapter)

    def _refer(self, slot: int, pages: Sequence[int], adapter: Packed) -> None:
        self.host_pages[slot] = list(pages)
        self.host_ranks[slot], self.host_scales[slot] = list(adapter.ranks), list(adapter.scales)
        self.slot_pages[slot, : len(pages)] = torch.tensor(pages, dtype=torch.int32)
        self.ranks[slot] = torch.tensor(adapter.ranks, dtype=torch.int32)
        self.scales[slot] = torch.tensor(adapter.scales)

    def a_rows(self, section: Section, page: int, rank: int) -> Tensor:
        """The first `rank` rows of A in a page, [rank, inputs]."""
        numbers = self.pages[page, section.a : section.a + rank * section.depth]
        return numbers.view(rank, section.depth)

    def b_rows(self, section: Section, page: int, rank: int) -> Tensor:
        """The first `rank` rows of B transposed in a page, [rank, outputs]."""
        numbers = self.pages[page, section.b : section.b + rank * section.width]
        return numbers.view(rank, section.width)


class LoraSite:
    """A layer's sections, which have the same input and whose outputs stand side by side.

    Args:
        first: index of its first section in the layout
    """

    def __init__(self, memory: LoraMemory, first: int, sections: Sequence[Section]) -> None:
        self.memory = memory
        self.first = first
        self.sections = tuple(sections)


def add_lora(y: Tensor, x: Tensor, site: LoraSite, step: LoraTokens) -> None:
    """Add to y, [num_tokens, outputs], what the step's adapters make of x, [num_tokens, inputs].

    With torch's operators, one adapter and one page of ranks after the other.
    """
    memory = site.memory
    for slot, first, end in step.runs:
        tokens = step.tokens[first:end]
        inputs = x[tokens]
        for index, section in enumerate(site.sections, site.first):
            rank, scale = memory.host_ranks[slot][index], memory.host_scales[slot][index]
            columns = y[:, section.first_output : section.first_output + section.width]
            for page in memory.host_pages[slot][: -(-rank // RANK_PAGE)]:
                ranks = min(rank, RANK_PAGE)
                rank -= ranks
                a = memory.a_rows(section, page, ranks).to(x.dtype)
                b = memory.b_rows(section, page, ranks).to(x.dtype)
                columns.index_add_(0, tokens, (inputs @ a.T * scale) @ b)


def _bytes(numbers: Tensor) -> NDArray[np.uint8]:
    return numbers.view(torch.uint8).numpy()
