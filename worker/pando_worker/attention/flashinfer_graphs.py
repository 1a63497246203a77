"""flashinfer's attention for CUDA graphs: decodes with a fixed number of rows in fixed memory."""

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer, HeadTurn, page_numbers
from pando_worker.attention.flashinfer_backend import FlashinferAttention
from pando_worker.attention.flashinfer_calls import (
    AttentionCall,
    AttentionKind,
    FixedRows,
    KernelCall,
    Role,
)
from pando_worker.attention.flashinfer_latent import LatentCall
from pando_worker.attention.paged_rows import first_pages_seen
from pando_worker.batch import ForwardBatch, Int64

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
        self._most = {
            kind: _most_pages(kind, context_length, page_size) for kind in attention.kinds
        }
        self._pages = {
            kind: torch.zeros(
                min(most_rows * most, MOST_PAGES), dtype=torch.int32, device=attention.device
            )
            for kind, most in self._most.items()
        }

    def at(self, rows: int) -> "FixedDecodes":
        return FixedDecodes(self._attention, rows, self._pages)

    def takes(self, batch: ForwardBatch, rows: int) -> bool:
        listed: Int64 = -(-batch.seq_lens.astype(np.int64) // batch.page_size)
        padding = rows - len(listed)  # rows with one page each
        at_most = int(listed.sum()) + padding
        fits = all(
            at_most <= len(self._pages[kind])
            or np.minimum(listed, most).sum() + padding <= len(self._pages[kind])
            for kind, most in self._most.items()
        )
        return fits and not self._attention.worth_sharing(batch, CASCADE_BYTES)


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
        self._rows = rows
        self._calls = {
            kind: _call(attention, kind, FixedRows.new(rows, pages[kind]))
            for kind in attention.kinds
        }
        self._slots = {
            released: torch.zeros(rows, dtype=attention.slot_dtype, device=attention.device)
            for released in sorted(set(attention.released.values()))
        }

    def plan(self, batch: ForwardBatch) -> None:
        attention = self._attention
        attention.begin_plan(batch)
        for released, fixed in self._slots.items():
            slots = page_numbers(batch, released)[1].astype(np.int32)
            # From the host only memory of the same type is copied without waiting.
            is_same = fixed.dtype == torch.int32
            staged = attention.staging.pinned if is_same else attention.staging.on_device
            fixed.copy_(staged(slots), non_blocking=True)
        for kind, call in self._calls.items():
            firsts, released = first_pages_seen(batch, kind.window), attention.released[kind]
            attention.plan_rows(call, batch, slice(0, self._rows), firsts, released)
        attention.staging.mark()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer) -> Tensor:
        attention = self._attention
        kind = attention.kind_of(layer)
        attention.store(k, v, layer, self._slots[attention.released[kind]])
        return attention.run_decodes(self._calls[kind], q, layer)

    @property
    def turns(self) -> bool:
        return self._attention.turns

    def forward_turned(self, qkv: Tensor, turn: HeadTurn, layer: AttentionLayer) -> Tensor:
        attention = self._attention
        kind = attention.kind_of(layer)
        q = attention.turn(qkv, turn, layer, self._slots[attention.released[kind]])
        return attention.run_decodes(self._calls[kind], q, layer)


def _call(attention: FlashinferAttention, kind: AttentionKind, fixed: FixedRows) -> AttentionCall:
    """For decodes, in fixed memory."""
    library, formats, memory = attention.library, attention.formats, attention.memories[kind]
    if kind.latent:
        return LatentCall(library, kind, formats, memory.workspace, fixed)
    return KernelCall(library, kind, Role.DECODE, formats, memory, fixed)


def _most_pages(kind: AttentionKind, context_length: int, page_size: int) -> int:
    whole = -(-context_length // page_size)
    if kind.window is None:
        return whole
    return min(whole, (kind.window - 1) // page_size + 2)
