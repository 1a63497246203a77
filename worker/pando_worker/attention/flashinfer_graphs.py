"""flashinfer's attention for CUDA graphs: decodes with a fixed number of rows in fixed memory."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer, HeadTurn, page_numbers
from pando_worker.attention.device_pages import AskedPages
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
from pando_worker.attention.paged_rows import PagedRows, first_pages_seen
from pando_worker.batch import ForwardBatch, Int64
from pando_worker.tensors.fixed_arrays import FixedArray, FixedArrays

# Attending together must save reading this much to beat a graph: its kernels are launched one by
# one, which is estimated (not measured) to take 4 ms longer.
CASCADE_BYTES = 16 * 2**30
# Most pages that all rows of a step may list, if contexts are long and pages small; above, no
# graph is used.
MOST_PAGES = 4 * 2**20


class FlashinferGraphs:
    """A `FixedAttention`. All sizes share one list of pages, as they run one after another."""

    def __init__(self, attention: FlashinferAttention, most_rows: int, context_length: int) -> None:
        assert most_rows <= attention.fixed_rows
        self._attention = attention
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
        return FixedDecodes(self._attention, rows, self._pages)

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


class _FixedCall:
    """A call for one kind of layer, and its rows, whose arrays are sent with those of others.

    Attributes:
        paged: the rows on the host, filled for each step
        pinned: for plans
        released: whether the layers release pages behind their window
    """

    def __init__(
        self,
        kind: AttentionKind,
        call: AttentionCall,
        new_indptr: FixedArray,
        req_rows: FixedArray,
        arrays: Sequence[FixedArray],
        *,
        released: bool,
    ) -> None:
        """
        Args:
            req_rows: of the device's tables
            arrays: those of `paged`
        """
        self.call, self.released, self._window = call, released, kind.window
        self.paged = PagedRows(*(array.filled for array in arrays))
        firsts, indptr, last_lens, lengths = arrays
        self.pinned = PinnedRows(new_indptr.pinned, indptr.pinned, last_lens.pinned, lengths.pinned)
        self._asked = req_rows.on_device, firsts.on_device, indptr.on_device

    def asked(self) -> AskedPages:
        return self._asked

    def fill(self, batch: ForwardBatch) -> None:
        if self._window is not None:
            self.paged.firsts[:] = first_pages_seen(batch, self._window)
        self.paged.fill(batch.seq_lens, batch.page_size)


class FixedDecodes:
    """An `AttentionBackend` for batches of exactly `rows` decodes.

    `plan` fills memory at fixed addresses; `forward` only launches kernels that read it.
    """

    def __init__(
        self, attention: FlashinferAttention, rows: int, pages: dict[AttentionKind, Tensor]
    ) -> None:
        """
        Args:
            pages: int32, for each kind, as many as all rows together may list
        """
        self._attention = attention
        released = sorted(set(attention.released.values()))
        of_kind = [rows, rows + 1, rows, rows]
        sizes = [rows + 1, rows, *[rows] * len(released), *of_kind * len(attention.kinds)]
        self._arrays = FixedArrays(sizes, attention.device)
        arrays = iter(self._arrays.arrays)
        new_indptr, self._req_rows = next(arrays), next(arrays)
        new_indptr.filled[:] = np.arange(rows + 1)
        self._sent_slots = {each: next(arrays) for each in released}
        self._calls = {
            kind: _FixedCall(
                kind,
                _call(attention, kind, FixedRows.new(rows, pages[kind])),
                new_indptr,
                self._req_rows,
                [next(arrays) for _ in of_kind],
                released=attention.released[kind],
            )
            for kind in attention.kinds
        }
        # What the graph reads.
        self._slots = {
            released: slots.on_device.to(attention.slot_dtype)
            for released, slots in self._sent_slots.items()
        }

    def plan(self, batch: ForwardBatch) -> None:
        attention = self._attention
        attention.begin_plan(batch)
        self._req_rows.filled[:] = batch.req_rows
        for released, slots in self._sent_slots.items():
            slots.filled[:] = page_numbers(batch, released)[1]
        for fixed in self._calls.values():
            fixed.fill(batch)
        self._arrays.send()
        if attention.slot_dtype != torch.int32:
            for released, slots in self._sent_slots.items():
                self._slots[released].copy_(slots.on_device)
        for fixed in self._calls.values():
            pages = attention.pages_of(batch, slice(None), fixed.paged, fixed.asked, fixed.released)
            fixed.call.plan(fixed.pinned, pages)
        attention.staging.mark()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer) -> Tensor:
        attention = self._attention
        kind = attention.kind_of(layer)
        attention.store(k, v, layer, self._slots[attention.released[kind]])
        return attention.run_decodes(self._calls[kind].call, q, layer)

    @property
    def turns(self) -> bool:
        return self._attention.turns

    def forward_turned(self, qkv: Tensor, turn: HeadTurn, layer: AttentionLayer) -> Tensor:
        attention = self._attention
        kind = attention.kind_of(layer)
        q = attention.turn(qkv, turn, layer, self._slots[attention.released[kind]])
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
