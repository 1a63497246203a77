"""flashinfer's attention for CUDA graphs: decodes with a fixed number of rows in fixed memory."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer, HeadTurn, page_numbers
from pando_worker.attention.device_pages import AskedPages, Padding
from pando_worker.attention.flashinfer.backend import FlashinferAttention
from pando_worker.attention.flashinfer.calls import (
    AttentionCall,
    FixedRows,
    KernelCall,
    PinnedRows,
    Role,
)
from pando_worker.attention.flashinfer.kind import AttentionKind, is_hopper
from pando_worker.attention.flashinfer.latent import LatentCall
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


class _RowsOfWindow:
    """What rows list in layers with one window, in arrays that are sent with those of others.

    Attributes:
        paged: on the host, filled for each step
        pinned: for plans
        asked: for lists of the device's tables
    """

    def __init__(
        self,
        window: int | None,
        firsts: FixedArray,
        indptr: FixedArray,
        lengths: FixedArray,
        new_indptr: FixedArray,
        last_lens: FixedArray,
        req_rows: FixedArray,
    ) -> None:
        """
        Args:
            lengths: without a window filled already
            new_indptr, last_lens, req_rows: the same for all windows; the last of the device's
                tables
        """
        self._window = window
        arrays = firsts, indptr, last_lens, lengths
        self.paged = PagedRows(*(array.filled for array in arrays))
        self.pinned = PinnedRows(new_indptr.pinned, *(array.pinned for array in arrays[1:]))
        self.asked = AskedPages(req_rows.on_device, firsts.on_device, indptr.on_device)

    def fill(self, seq_lens: Int32, pages: Int32, page_size: int) -> None:
        """
        Args:
            pages: of each row, the one of its last token included
        """
        paged = self.paged
        if self._window is not None:  # as `first_pages_seen`, of decodes
            np.subtract(seq_lens, self._window, out=paged.firsts)
            np.maximum(paged.firsts, 0, out=paged.firsts)
            np.floor_divide(paged.firsts, page_size, out=paged.firsts)
            np.subtract(seq_lens, paged.firsts * page_size, out=paged.lengths)
            pages = pages - paged.firsts
        np.add.accumulate(pages, out=paged.indptr[1:])


class _CallOfKind(NamedTuple):
    """
    Attributes:
        released: whether the kind's layers release pages behind their window
    """

    call: AttentionCall
    released: bool
    rows: _RowsOfWindow


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
        windows = list(dict.fromkeys(kind.window for kind in attention.kinds))
        own_rows, of_windows = 3 + len(self._released), [(rows,), (rows + 1,), (rows,)]
        shapes = [(rows + 1,), (own_rows, rows), *of_windows * len(windows)]
        self._arrays = FixedArrays(shapes, attention.device)
        new_indptr, own, *others = self._arrays.arrays
        new_indptr.filled[:] = np.arange(rows + 1)
        # Of each row: its tokens, those in its last page, its row of the device's tables, and its
        # token's slots.
        self._own = own.filled
        page_size = attention.formats.page_size
        slots = [padding.pages[released] * page_size for released in self._released]
        self._of_padding = np.array([1, 1, padding.row, *slots], dtype=np.int32)[:, None]
        self._rows = {
            window: _RowsOfWindow(
                window,
                firsts,
                indptr,
                own.at(0) if window is None else lengths,
                new_indptr,
                own.at(1),
                own.at(2),
            )
            for window, firsts, indptr, lengths in zip(
                windows, others[::3], others[1::3], others[2::3], strict=True
            )
        }
        self._calls = {
            kind: _CallOfKind(
                _call(attention, kind, FixedRows.new(rows, pages[kind])),
                attention.released[kind],
                self._rows[kind.window],
            )
            for kind in attention.kinds
        }
        # What the graph reads.
        self._sent_slots = own.on_device[3:]
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
        for call, released, rows in self._calls.values():
            if tables is None:
                listed = pages_of(batch, slice(None), rows.paged, released)
                pages = to_device(listed, attention.device)
            else:
                count = int(rows.paged.indptr[-1])
                pages = tables.listed(rows.asked, count, most, released=released)
            call.plan(rows.pinned, pages)
        attention.staging.mark()

    def _fill(self, batch: ForwardBatch) -> None:
        own, count = self._own, len(batch.seq_lens)
        own[0, :count], own[2, :count] = batch.seq_lens, batch.req_rows
        for slots, released in zip(own[3:], self._released, strict=True):
            slots[:count] = page_numbers(batch, released)[1]
        if count < own.shape[1]:
            own[:, count:] = self._of_padding
        seq_lens, page_size = own[0], self._attention.formats.page_size
        # Of the last token: its page, and its place in that.
        pages, places = np.divmod(seq_lens - 1, page_size)
        np.add(places, 1, out=own[1])
        pages += 1
        for rows in self._rows.values():
            rows.fill(seq_lens, pages, page_size)

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


def _call(attention: FlashinferAttention, kind: AttentionKind, fixed: FixedRows) -> AttentionCall:
    """For decodes, in fixed memory."""
    library, formats, memory = attention.library, attention.formats, attention.memories[kind]
    if kind.latent:
        is_fa3 = is_hopper(attention.device)
        return LatentCall(library, kind, formats, memory.workspace, fixed, is_fa3=is_fa3)
    return KernelCall(library, kind, Role.DECODE, formats, memory, fixed)


def _most_pages(kind: AttentionKind, context_length: int, page_size: int) -> int:
    whole = -(-context_length // page_size)
    if kind.window is None:
        return whole
    return min(whole, (kind.window - 1) // page_size + 2)
