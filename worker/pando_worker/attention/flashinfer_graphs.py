"""flashinfer's attention for CUDA graphs: decodes with a fixed number of rows in fixed memory."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer, HeadTurn, page_numbers
from pando_worker.attention.device_pages import AskedPages, Padding
from pando_worker.attention.flashinfer_backend import FlashinferAttention
from pando_worker.attention.flashinfer_calls import (
    AttentionCall,
    AttentionKind,
    FixedRows,
    KernelCall,
    PinnedRows,
    Role,
    is_hopper,
)
from pando_worker.attention.flashinfer_latent import LatentCall
from pando_worker.attention.paged_rows import PagedRows, pages_of
from pando_worker.batch import ForwardBatch, Int32, Int64
from pando_worker.tensors.fixed_arrays import FixedArray, FixedArrays
from pando_worker.tensors.transfer import to_device

# Attending together must save reading this much to beat a graph: its kernels are launched one by
# one, which is estimated (not measured) to take 4 ms longer.
CASCADE_BYTES = 16 * 2**30
# Most pages that all rows of a step may list, if contexts are long and pages small; above, no
# graph is used.
MOST_PAGES = 4 * 2**20


class FlashinferGraphs:
    """A `FixedAttention`. All sizes share one list of pages, as they run one after another."""

    def __init__(
        self,
        attention: FlashinferAttention,
        most_rows: int,
        context_length: int,
        padding: Padding,
    ) -> None:
        assert most_rows <= attention.fixed_rows
        self._attention, self._padding = attention, padding
        page_size = attention.formats.page_size
        # Most pages that one row may list.
        most_of = {kind: _most_pages(kind, context_length, page_size) for kind in attention.kinds}
        self._pages = {
            kind: torch.zeros(
                min(most_rows * most, MOST_PAGES), dtype=torch.int32, device=attention.device
            )
            for kind, most in most_of.items()
        }
        # Of kinds whose list has no room for all that rows may list.
        self._cut = [most for most in most_of.values() if most_rows * most > MOST_PAGES]

    def at(self, rows: int) -> "FixedDecodes":
        return FixedDecodes(self._attention, rows, self._pages, self._padding)

    def takes(self, batch: ForwardBatch, rows: int) -> bool:
        fits = self._fits(batch, rows - len(batch.seq_lens))
        return fits and not self._attention.worth_sharing(batch, CASCADE_BYTES)

    def _fits(self, batch: ForwardBatch, padding: int) -> bool:
        """Whether there is room for the pages that rows list.

        Args:
            padding: further rows, with one page each
        """
        if not self._cut or batch.page_table.size + padding <= MOST_PAGES:
            return True
        listed: Int64 = -(-batch.seq_lens.astype(np.int64) // batch.page_size)
        return all(np.minimum(listed, most).sum() + padding <= MOST_PAGES for most in self._cut)


class _CallOfKind(NamedTuple):
    """A call for one kind of layer, and its rows, whose arrays are sent with those of others.

    Attributes:
        released: whether the layers release pages behind their window
        paged: the rows on the host, filled for each step
        pinned: for plans
        asked: for lists of the device's tables
    """

    call: AttentionCall
    released: bool
    paged: PagedRows
    pinned: PinnedRows
    asked: AskedPages


class FixedDecodes:
    """An `AttentionBackend` for batches of up to `rows` decodes; the others are rows of padding
    with one token, in the first slot of a page that no request owns.

    `plan` fills memory at fixed addresses; `forward` only launches kernels that read it.
    """

    def __init__(
        self,
        attention: FlashinferAttention,
        rows: int,
        pages: dict[AttentionKind, Tensor],
        padding: Padding,
    ) -> None:
        """
        Args:
            pages: int32, for each kind, as many as all rows together may list
        """
        self._attention, self._padding = attention, padding
        self._released = sorted(set(attention.released.values()))
        kinds, page_size = attention.kinds, attention.formats.page_size
        of_kinds = [(len(kinds), count) for count in (rows, rows + 1, rows, rows)]
        shapes = [(rows + 1,), (2 + len(self._released), rows), *of_kinds]
        self._arrays = FixedArrays(shapes, attention.device)
        new_indptr, own, *listed = self._arrays.arrays
        new_indptr.filled[:] = np.arange(rows + 1)
        # Of each row: its tokens, its row of the device's tables, and its token's slots.
        self._own = own.filled
        slots = [padding.pages[released] * page_size for released in self._released]
        self._of_padding = np.array([1, padding.row, *slots], dtype=np.int32)[:, None]
        self._paged = PagedRows(*(array.filled for array in listed))
        self._windows = _windows(kinds)
        self._calls = {
            kind: _call_of_kind(
                kind,
                attention,
                FixedRows.new(rows, pages[kind]),
                new_indptr,
                own.at(1),
                [array.at(index) for array in listed],
            )
            for index, kind in enumerate(kinds)
        }
        # What the graph reads.
        self._sent_slots = own.on_device[2:]
        self._slots = self._sent_slots.to(attention.slot_dtype)
        self._slots_of = dict(zip(self._released, self._slots, strict=True))

    def plan(self, batch: ForwardBatch) -> None:
        attention = self._attention
        attention.begin_plan(batch)
        self._fill(batch)
        self._arrays.send()
        if attention.slot_dtype != torch.int32:
            self._slots.copy_(self._sent_slots)
        tables, most = attention.tables_of(batch), batch.page_table.shape[1]
        if tables is None:
            batch = self._with_tables_of_padding(batch)
        for call, released, paged, pinned, asked in self._calls.values():
            if tables is None:
                listed = pages_of(batch, slice(None), paged, released)
                pages = to_device(listed, attention.device)
            else:
                pages = tables.listed(asked, int(paged.indptr[-1]), most, released=released)
            call.plan(pinned, pages)
        attention.staging.mark()

    def _fill(self, batch: ForwardBatch) -> None:
        own, count = self._own, len(batch.seq_lens)
        own[0, :count], own[1, :count] = batch.seq_lens, batch.req_rows
        for slots, released in zip(own[2:], self._released, strict=True):
            slots[:count] = page_numbers(batch, released)[1]
        own[:, count:] = self._of_padding
        seq_lens, firsts = own[0], self._paged.firsts
        page_size = self._attention.formats.page_size
        if self._windows is not None:  # as `first_pages_seen`, of all kinds
            np.subtract(seq_lens, self._windows, out=firsts)
            np.maximum(firsts, 0, out=firsts)
            np.floor_divide(firsts, page_size, out=firsts)
        self._paged.fill(seq_lens, page_size)

    def _with_tables_of_padding(self, batch: ForwardBatch) -> ForwardBatch:
        more = self._own.shape[1] - len(batch.seq_lens)
        tables = {
            released: np.pad(
                page_numbers(batch, released)[0],
                ((0, more), (0, 0)),
                constant_values=self._padding.pages[released],
            )
            for released in self._released
        }
        return replace(
            batch, page_table=tables.get(False, batch.page_table), window_table=tables.get(True)
        )

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer) -> Tensor:
        attention = self._attention
        kind = attention.kind_of(layer)
        attention.store(k, v, layer, self._slots_of[attention.released[kind]])
        return attention.run_decodes(self._calls[kind].call, q, layer)

    @property
    def turns(self) -> bool:
        return self._attention.turns

    def forward_turned(self, qkv: Tensor, turn: HeadTurn, layer: AttentionLayer) -> Tensor:
        attention = self._attention
        kind = attention.kind_of(layer)
        q = attention.turn(qkv, turn, layer, self._slots_of[attention.released[kind]])
        return attention.run_decodes(self._calls[kind].call, q, layer)


def _call_of_kind(
    kind: AttentionKind,
    attention: FlashinferAttention,
    fixed: FixedRows,
    new_indptr: FixedArray,
    req_rows: FixedArray,
    arrays: Sequence[FixedArray],
) -> _CallOfKind:
    """
    Args:
        req_rows: of the device's tables
        arrays: those of its `PagedRows`
    """
    firsts, indptr, last_lens, lengths = arrays
    return _CallOfKind(
        _call(attention, kind, fixed),
        attention.released[kind],
        PagedRows(*(array.filled for array in arrays)),
        PinnedRows(new_indptr.pinned, indptr.pinned, last_lens.pinned, lengths.pinned),
        AskedPages(req_rows.on_device, firsts.on_device, indptr.on_device),
    )


def _call(attention: FlashinferAttention, kind: AttentionKind, fixed: FixedRows) -> AttentionCall:
    """For decodes, in fixed memory."""
    library, formats, memory = attention.library, attention.formats, attention.memories[kind]
    if kind.latent:
        is_fa3 = is_hopper(attention.device)
        return LatentCall(library, kind, formats, memory.workspace, fixed, is_fa3=is_fa3)
    return KernelCall(library, kind, Role.DECODE, formats, memory, fixed)


def _windows(kinds: Sequence[AttentionKind]) -> Int32 | None:
    """[kinds, 1], where all keys are seen larger than any context; None if no kind has one."""
    if all(kind.window is None for kind in kinds):
        return None
    most = np.iinfo(np.int32).max
    return np.array([[kind.window or most] for kind in kinds], dtype=np.int32)


def _most_pages(kind: AttentionKind, context_length: int, page_size: int) -> int:
    whole = -(-context_length // page_size)
    if kind.window is None:
        return whole
    return min(whole, (kind.window - 1) // page_size + 2)
