"""What a step's tokens add to linear layers for their adapters (LoRA, arXiv:2106.09685).

Adapters lie in pages of device memory (`adapters/layout.py`). A slot refers to the pages of one
adapter, and has a rank, a scale and two matrices for each section, that is each linear layer of the
checkpoint. A step's tokens are sorted by slot, so that those of one adapter are multiplied
together.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pando_worker.adapters.layout import Layout, Section, pieces
from pando_worker.batch import Int32
from pando_worker.tensors.huge_pages import advise_huge_pages
from pando_worker.tensors.transfer import CopyMark, pinned


@dataclass(frozen=True, slots=True)
class LoraTokens:
    """The tokens of a step that run with an adapter.

    Attributes:
        tokens: int32 [n], their indices, sorted by slot
        slots: int32 [n], the slot of each
        count: int32 [1], how many of the n there are; the rest is padding
        runs: slot, first and end of each group of neighbours with one slot, for code that works on
            the host; may be left out
        linear_alone: whether no adapter of the step has anything but linear layers
    """

    tokens: Tensor
    slots: Tensor
    count: Tensor
    runs: Sequence[tuple[int, int, int]] = ()
    linear_alone: bool = True

    @property
    def host_runs(self) -> Sequence[tuple[int, int, int]]:
        """`runs`, waiting for the device if they were left out."""
        return self.runs or runs_of(self.slots[: int(self.count)].cpu().numpy())


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


@dataclass(frozen=True, slots=True)
class PackedSection:
    """What an adapter has of a section. The starts of its matrices are those of `pieces`."""

    rank: int = 0  # 0: nothing; of a whole table 1
    scale: float = 0.0
    a: int = 0  # start of A, [rank, inputs]; of an embedding's, [inputs, rank]; of a whole table
    b: int = 0  # start of B transposed, [rank, outputs]


@dataclass(frozen=True, slots=True)
class PackedAdapter:
    """An adapter in the form of one rank's device memory.

    Attributes:
        pages: [pages, numbers of a page]
        sections: in the order of the layout
    """

    pages: Tensor
    sections: tuple[PackedSection, ...]

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
        layout: of the model
        pages: [pages, numbers of a page]
        most_rank: of any section
        slot_pages: int32 [slots, pages], each slot's pages in order
        ranks: int32 [slots, sections], 0 where the slot's adapter has nothing
        scales: float32 [slots, sections]
        starts: int64 [slots, sections, 2], of A and B
        step: None if all tokens run the base model
        heads: the same for the rows that the head computes, if an adapter has more than linear
            layers
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
        self.page_numbers = layout.page_numbers
        self.pages = torch.empty(pages, self.page_numbers, dtype=dtype, device=device)
        if device.type == "cpu":
            advise_huge_pages(self.pages)
        sections = len(layout.sections)
        self.slot_pages = torch.zeros(slots, pages, dtype=torch.int32, device=device)
        self.ranks = torch.zeros(slots, sections, dtype=torch.int32, device=device)
        self.scales = torch.zeros(slots, sections, dtype=torch.float32, device=device)
        self.starts = torch.zeros(slots, sections, 2, dtype=torch.int64, device=device)
        # The same for code on the host, which need not wait for the device.
        self._held: list[tuple[PackedSection, ...]] = [()] * slots
        self._held_pages: list[list[int]] = [[] for _ in range(slots)]
        self._linear_alone = [True] * slots
        self.step: LoraTokens | None = None
        self.heads: LoraTokens | None = None
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @property
    def dtype(self) -> torch.dtype:
        return self.pages.dtype

    def put(
        self,
        slot: int,
        pages: Sequence[int],
        adapter: PackedAdapter,
    ) -> None:
        """Copy an adapter into pages, and let a slot refer to them. No step uses either now. There
        may be more pages than it needs, if another rank's share needs them.

        On the CPU numpy copies: torch would use the cores that the model computes on.
        """
        if self._stream is not None:
            with torch.cuda.stream(self._stream):
                for page, numbers in zip(pages, adapter.pages, strict=False):
                    self.pages[page].copy_(numbers.pin_memory(), non_blocking=True)
                self._refer(slot, pages, adapter)
                copied = CopyMark(self.pages.device)
                copied.set()
            copied.wait()
            return
        for page, numbers in zip(pages, adapter.pages, strict=False):
            np.copyto(_bytes(self.pages[page]), _bytes(numbers))
        self._refer(slot, pages, adapter)

    def _refer(self, slot: int, pages: Sequence[int], adapter: PackedAdapter) -> None:
        sections = adapter.sections
        self._held[slot], self._held_pages[slot] = sections, list(pages)
        self._linear_alone[slot] = not any(
            held.rank and not section.is_linear
            for held, section in zip(sections, self.layout, strict=True)
        )
        # By numpy, which reads lists in a tenth of the time that torch takes.
        ranks = np.array([each.rank for each in sections], dtype=np.int32)
        scales = np.array([each.scale for each in sections], dtype=np.float32)
        starts = np.array([(each.a, each.b) for each in sections], dtype=np.int64)
        tables = (
            (self.slot_pages[slot, : len(pages)], np.array(pages, dtype=np.int32)),
            (self.ranks[slot], ranks),
            (self.scales[slot], scales),
            (self.starts[slot], starts),
        )
        for table, values in tables:
            table.copy_(pinned(values, self.pages.device), non_blocking=True)

    def held(self, slot: int, section: int) -> PackedSection:
        return self._held[slot][section]

    def linear_alone(self, slots: Iterable[int]) -> bool:
        """Whether the adapters in these slots have nothing but linear layers."""
        return all(self._linear_alone[slot] for slot in slots)

    def parts(self, slot: int, start: int, rows: int, columns: int) -> Iterator[tuple[int, Tensor]]:
        """A matrix of the slot's adapter as it lies in pages: the first row of each part, and the
        part."""
        for piece in pieces(start, rows, columns, self.page_numbers):
            page = self.pages[self._held_pages[slot][piece.page]]
            numbers = page[piece.place : piece.place + piece.rows * columns]
            yield piece.first, numbers.view(piece.rows, columns)

    def rows(self, slot: int, start: int, columns: int, rows: Tensor) -> Tensor:
        """Some rows of a matrix, [n, columns]; `rows` is int64 [n]. Does not wait for the
        device."""
        page, place = divmod(start, self.page_numbers)
        first, in_page = (self.page_numbers - place) // columns, self.page_numbers // columns
        later = rows - first
        is_first = later < 0
        number = torch.where(is_first, page, page + 1 + later // in_page)
        place_in_page = torch.where(is_first, place + rows * columns, later % in_page * columns)
        starts = self.slot_pages[slot].long()[number] * self.page_numbers + place_in_page
        columns_of_row = torch.arange(columns, device=rows.device)
        return self.pages.view(-1)[starts[:, None] + columns_of_row]

    def matrix(self, slot: int, start: int, rows: int, columns: int) -> Tensor:
        """A matrix of the slot's adapter."""
        parts = [part for _, part in self.parts(slot, start, rows, columns)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def lora_bytes(layout: Layout, pages: int, dtype: torch.dtype) -> int:
    """Of device memory with this many pages."""
    return pages * layout.page_numbers * dtype.itemsize


class LoraSite:
    """A layer's sections, which have the same input and whose outputs stand side by side.

    Args:
        first: index of its first section in the layout
        sections: with experts, those of the first of them; the others' follow in the layout
        experts: how many have sections of the same sizes. A token's slot is then
            slot * experts + expert

    Attributes:
        columns: int32 [sections, 2], the first of the layer's outputs and how many there are
    """

    def __init__(
        self, memory: LoraMemory, first: int, sections: Sequence[Section], experts: int = 1
    ) -> None:
        self.memory = memory
        self.first = first
        self.sections = tuple(sections)
        self.experts = experts
        columns = [[section.first_output, section.width] for section in sections]
        self.columns = torch.tensor(columns, dtype=torch.int32, device=memory.pages.device)


def add_lora(y: Tensor, x: Tensor, site: LoraSite, step: LoraTokens) -> None:
    """Add to y, [num_tokens, outputs], what the step's adapters make of x, [num_tokens, inputs].

    With torch's operators, one adapter after the other.
    """
    memory = site.memory
    for key, first, end in step.host_runs:
        slot, expert = divmod(key, site.experts)
        tokens = step.tokens[first:end]
        inputs = x[tokens]
        of_expert = site.first + expert * len(site.sections)
        for index, section in enumerate(site.sections, of_expert):
            held = memory.held(slot, index)
            if not held.rank:
                continue
            a = memory.matrix(slot, held.a, held.rank, section.depth).to(x.dtype)
            b = memory.matrix(slot, held.b, held.rank, section.width).to(x.dtype)
            columns = y[:, section.first_output : section.first_output + section.width]
            columns.index_add_(0, tokens, (inputs @ a.T * held.scale) @ b)


def _bytes(numbers: Tensor) -> NDArray[np.uint8]:
    return numbers.view(torch.uint8).numpy()
