"""Attention on CUDA with flashinfer's kernels, which read the paged pool directly.

The leading rows of a batch with one new token are decodes, the others extends. Each part has its
own kernel: one for many queries per row wastes most of its work on a single query. Extends run with
FlashAttention 2 or 3, by their lengths (see `kernel_choice`). Rows that share
long prefixes attend to them together (see `shared_prefixes`). Where an image's tokens see each
other, extends are cut into text and images (see `segments`). Layers that differ in shape, scale,
window, soft cap or sinks have separate plans.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.backend import (
    AttentionLayer,
    HeadTurn,
    HeadTurner,
    LayerKV,
    page_numbers,
)
from pando_worker.attention.device_pages import (
    AskedPages,
    DevicePages,
    PageLister,
    TableSize,
    list_pages,
)
from pando_worker.attention.flashinfer.calls import (
    CPU_MULTIPROCESSORS,
    DECODE_INT_WORKSPACE_BYTES,
    Appends,
    AttentionCall,
    Memory,
    PinnedRows,
    Role,
    new_indptr,
)
from pando_worker.attention.flashinfer.calls_of_kind import CallsOfKind
from pando_worker.attention.flashinfer.fp8_queries import QueryQuantizer, quantized_queries
from pando_worker.attention.flashinfer.kernel_choice import Heads, KernelTable, choose_by
from pando_worker.attention.flashinfer.kind import AttentionKind, Formats, workspace_bytes
from pando_worker.attention.flashinfer.latent import latent_refusal
from pando_worker.attention.flashinfer.library import FlashinferUnavailable, Library
from pando_worker.attention.flashinfer.segments import cut
from pando_worker.attention.flashinfer.shared_prefixes import (
    SharedPrefix,
    Together,
    shared_prefixes,
    together,
)
from pando_worker.attention.kv_pool import KVStorer, TokenToKVPool, kv_cell_bytes
from pando_worker.attention.paged_rows import first_pages_seen, paged_rows, pages_of
from pando_worker.attention.staging import Staging
from pando_worker.batch import ForwardBatch, Int32, Int64
from pando_worker.tensors.transfer import to_device

# Attending together must save reading at least this much. It costs about four more kernels per
# layer, estimated (not measured) at 0.5 ms for 32 layers; an H200 reads 2.4 GB in that time.
CASCADE_BYTES = 2 * 2**30


class _RowsOfCall(NamedTuple):
    """Rows that one call computes.

    Attributes:
        batch: of which these are `rows`
        row_of: of each row of this batch, that of the step to which it belongs
        tokens: of the step; a tensor if they are not next to each other
    """

    role: Role
    batch: ForwardBatch
    rows: slice
    row_of: Int64
    tokens: slice | Tensor


class _Plan(NamedTuple):
    """The calls of a step for one kind of layer, each with its part's tokens.

    Attributes:
        shared: None if no rows attend together
        together: as `Together.tokens`
    """

    calls: list[tuple[AttentionCall, slice | Tensor]]
    shared: AttentionCall | None
    together: Tensor | None


class FlashinferAttention:
    """An `AttentionBackend` for half-precision models on CUDA.

    Attributes:
        turns: as of `TurningBackend`
        slots: of the step's new tokens, [num_tokens] of `slot_dtype`, by whether their layers
            release pages
    """

    def __init__(
        self,
        pool: TokenToKVPool,
        page_size: int,
        dtype: torch.dtype,
        most_tokens: int,
        library: Library | None = None,
        *,
        table: TableSize | None = None,
        kernels: KernelTable | None = None,
        lister: PageLister = list_pages,
        storer: KVStorer | None = None,
        turner: HeadTurner | None = None,
        quantizer: QueryQuantizer = quantized_queries,
        fixed_rows: int = 256,
        images_are_whole: bool = False,
    ) -> None:
        """
        Args:
            dtype: of queries, new keys and values, and results
            most_tokens: largest number of tokens in a step
            table: of the requests' pages on the device; None: batches have no `page_changes`
            kernels: measured times of attention's kernels on this device
            lister: lists pages of it
            storer: stores what flashinfer has no kernel for; None: torch does
            turner: for layers whose keys and values are equally wide; None: `forward` only
            quantizer: of queries, for FlashAttention 3 with keys and values in e4m3
            fixed_rows: largest number of rows in a CUDA graph
            images_are_whole: whether an image's tokens see each other

        Raises:
            FlashinferUnavailable: it is not installed or has no kernels for these layers.
        """
        self._kinds = {layer.index: AttentionKind.of(layer) for layer in pool.layers}
        # Layers of one kind have one window, so either all of them release pages or none does.
        self.released = {kind: index in pool.windowed for index, kind in self._kinds.items()}
        if reason := refusal(list(self._kinds.values()), dtype, pool.k[0].dtype):
            raise FlashinferUnavailable(reason)
        self.pool, self.library = pool, library or Library()
        self.device = pool.k[0].device
        self.formats = Formats(dtype, pool.k[0].dtype, page_size)
        self.kinds = list(dict.fromkeys(self._kinds.values()))
        self.staging = Staging(self.device)
        self.tables: DevicePages | None = None
        if table is not None:
            windows = True in self.released.values()
            self.tables = DevicePages(table, self.device, lister, windows=windows)
        self.fixed_rows = fixed_rows
        multiprocessors = _multiprocessors(self.device)
        size = workspace_bytes(self.kinds, fixed_rows, multiprocessors)
        workspace = torch.zeros(size, dtype=torch.uint8, device=self.device)
        self.memories = {  # for decodes
            kind: Memory.new(workspace, DECODE_INT_WORKSPACE_BYTES) for kind in self.kinds
        }
        self._calls = {
            kind: CallsOfKind.of(
                kind,
                self.library,
                self.formats,
                self.memories[kind],
                self.staging,
                choose_by(
                    kernels,
                    Heads(kind.heads, kind.kv_heads, kind.head_dim, kind.v_head_dim),
                    multiprocessors,
                ),
                quantizer,
                images_are_whole=images_are_whole,
            )
            for kind in self.kinds
        }
        self.staging.mark()  # those of FlashAttention 3 have planned
        self._paged = [_paged(pool, layer.index, page_size) for layer in pool.layers]
        self._storer, self._turner = storer, turner
        same_width = all(kind.head_dim == kind.v_head_dim for kind in self.kinds)
        self.turns = turner is not None and same_width
        self._appends = None
        if self.formats.kv_dtype == dtype and same_width:
            self._appends = Appends(self.library, most_tokens, self.device)
        self._sinks: dict[int, Tensor] = {}
        cell_bytes = kv_cell_bytes(
            [layer for layer in pool.layers if self._kinds[layer.index].can_share],
            self.formats.kv_dtype,
        )
        self._page_bytes = cell_bytes * page_size  # of the layers that can share
        if cell_bytes:
            self._compile_merge()
        self._plans: dict[AttentionKind, _Plan] = {}
        self.slots: dict[bool, Tensor] = {}

    @property
    def slot_dtype(self) -> torch.dtype:
        """That storing takes."""
        return torch.int64 if self._appends is None else torch.int32

    def plan(self, batch: ForwardBatch) -> None:
        prefixes = self.worth_sharing(batch, CASCADE_BYTES)
        self.begin_plan(batch)
        self.slots = {
            released: slots.to(self.slot_dtype)
            for released in set(self.released.values())
            for slots in self.staging.on_device(page_numbers(batch, released)[1].astype(np.int32))
        }
        parts = self._parts(batch)
        sharing = together(batch, prefixes, self.device) if prefixes else None
        for kind in self.kinds:
            self._plans[kind] = self._planned(kind, parts, sharing if kind.can_share else None)
        self.staging.mark()

    def _planned(
        self, kind: AttentionKind, parts: list[_RowsOfCall], sharing: Together | None
    ) -> _Plan:
        own, released, shared = self._calls[kind], self.released[kind], None
        if sharing is not None:
            rows, starts = sharing.rows, sharing.starts
            shared = own.chosen(Role.SHARED, np.diff(starts), rows.lengths)
            shared.plan(PinnedRows.of(rows, starts, self.staging), sharing.pages)
        calls: list[tuple[AttentionCall, slice | Tensor]] = []
        for part in parts:
            firsts = first_pages_seen(part.batch, kind.window)
            if sharing is not None:
                firsts = np.maximum(firsts, sharing.skipped[part.row_of])
            keys = (part.batch.seq_lens - firsts * part.batch.page_size)[part.rows]
            call = own.chosen(part.role, part.batch.extend_lens[part.rows], keys)
            self.plan_rows(call, part.batch, part.rows, firsts, released)
            calls.append((call, part.tokens))
        return _Plan(calls, shared, None if sharing is None else sharing.tokens)

    def begin_plan(self, batch: ForwardBatch) -> None:
        """Call before the plans of a batch, all of which take `staging`."""
        self.staging.wait()
        if batch.page_changes is not None and self.tables is not None:
            self.tables.apply(batch.page_changes, self.staging)

    def tables_of(self, batch: ForwardBatch) -> DevicePages | None:
        """The device's page tables, if they have the batch's rows."""
        return None if batch.page_changes is None else self.tables

    def plan_rows(
        self, call: AttentionCall, batch: ForwardBatch, rows: slice, firsts: Int32, released: bool
    ) -> None:
        """Plan `call` for some rows of a batch, each from its own first page.

        Args:
            released: for layers that release pages behind their window
        """
        paged, tables = paged_rows(batch, rows, firsts), self.tables_of(batch)
        if tables is None:
            pages = to_device(pages_of(batch, rows, paged, released), self.device)
        else:
            at = batch.req_rows[rows].astype(np.int32)
            asked = AskedPages(*self.staging.on_device(at, paged.firsts, paged.indptr))
            count, most = int(paged.indptr[-1]), batch.page_table.shape[1]
            pages = tables.listed(asked, count, most, released=released)
        starts = new_indptr(batch.extend_lens[rows])
        call.plan(PinnedRows.of(paged, starts, self.staging), pages)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer) -> Tensor:
        self.store(k, v, layer, self.slots[self.released[self._kinds[layer.index]]])
        return self._attended(q, layer)

    def forward_turned(self, qkv: Tensor, turn: HeadTurn, layer: AttentionLayer) -> Tensor:
        slots = self.slots[self.released[self._kinds[layer.index]]]
        return self._attended(self.turn(qkv, turn, layer, slots), layer)

    def _attended(self, q: Tensor, layer: AttentionLayer) -> Tensor:
        out = q.new_empty(len(q), layer.heads, layer.v_head_dim)
        self.attend(q, layer, out)
        return out

    def attend(self, q: Tensor, layer: AttentionLayer, out: Tensor) -> None:
        """Attention alone, behind a `store` of the step's keys and values.

        Args:
            q: [num_tokens, heads, q_dim]
            out: [num_tokens, heads, v_head_dim], filled
        """
        # No load writes a page with new tokens, so these may be stored before.
        self.pool.arrive(layer.index)
        plan, paged = self._plans[self._kinds[layer.index]], self._paged_of(layer)
        sinks = self.sinks_of(layer)
        lse = None
        if plan.shared is not None:
            lse = q.new_empty(len(q), layer.heads, dtype=torch.float32)
        for call, tokens in plan.calls:
            part_lse = None if lse is None else lse[tokens]
            if isinstance(tokens, slice):
                call.run(q[tokens], paged, sinks, out[tokens], part_lse)
                continue
            part_out = out[tokens]
            call.run(q[tokens], paged, sinks, part_out, part_lse)
            out.index_copy_(0, tokens, part_out)
            if lse is not None and part_lse is not None:
                lse.index_copy_(0, tokens, part_lse)
        if plan.shared is not None and lse is not None:
            self._merge_shared(plan.shared, plan.together, q, paged, out, lse)

    def store(self, k: Tensor, v: Tensor, layer: AttentionLayer, slots: Tensor) -> None:
        """Store new keys and values in the pool; `slots`, [num_tokens], have `slot_dtype`."""
        pool = self.pool.of(layer.index)
        if self._appends is not None:
            self._appends.store(k, v, pool, slots)
        elif self._storer is not None:
            self._storer(k, v, pool, slots)
        else:
            self.pool.store(layer.index, slots, k, v)

    def turn(self, qkv: Tensor, turn: HeadTurn, layer: AttentionLayer, slots: Tensor) -> Tensor:
        """Turn heads and store keys and values, if `turns`; returns the queries."""
        assert self._turner is not None
        return self._turner(qkv, turn, layer, self.pool.of(layer.index), slots)

    def run_decodes(self, call: AttentionCall, q: Tensor, layer: AttentionLayer) -> Tensor:
        """Attention for one token per row, with a planned call."""
        out = q.new_empty(len(q), layer.heads, layer.v_head_dim)
        call.run(q, self._paged_of(layer), self.sinks_of(layer), out)
        return out

    def _paged_of(self, layer: AttentionLayer) -> LayerKV:
        """[pages, page_size, kv_heads, head_dim or v_head_dim] each"""
        return LayerKV(*self._paged[layer.index], self.pool.scales[layer.index])

    def kind_of(self, layer: AttentionLayer) -> AttentionKind:
        return self._kinds[layer.index]

    def sinks_of(self, layer: AttentionLayer) -> Tensor | None:
        """The layer's sinks in float32, as kernels need them; converted once."""
        if layer.sinks is not None and layer.index not in self._sinks:
            self._sinks[layer.index] = layer.sinks.float().contiguous()
        return self._sinks.get(layer.index)

    def worth_sharing(self, batch: ForwardBatch, least_bytes: int) -> list[SharedPrefix]:
        """Rows that should attend together, if that saves reading `least_bytes` in all layers."""
        if self._page_bytes == 0:
            return []
        return shared_prefixes(batch, at_least=-(-least_bytes // self._page_bytes))

    def _merge_shared(
        self,
        call: AttentionCall,
        tokens: Tensor | None,
        q: Tensor,
        paged: LayerKV,
        out: Tensor,
        lse: Tensor,
    ) -> None:
        """`out` and `lse` cover each row's own pages; afterwards `out` covers all of its pages."""
        some_q, some_out, some_lse = (
            x if tokens is None else x.index_select(0, tokens) for x in (q, out, lse)
        )
        above, above_lse = torch.empty_like(some_out), torch.empty_like(some_lse)
        call.run(some_q, paged, None, above, above_lse)
        merged: Tensor = self.library.merge_state(some_out, some_lse, above, above_lse)[0]
        if tokens is None:
            out.copy_(merged)
        else:
            out.index_copy_(0, tokens, merged)

    def _compile_merge(self) -> None:
        """Compile this kernel now, before requests wait for it; trial steps compile the others."""
        out = torch.zeros(1, 1, 64, dtype=self.formats.dtype, device=self.device)
        lse = torch.zeros(1, 1, device=self.device)
        self.library.merge_state(out, lse, out, lse)

    def _parts(self, batch: ForwardBatch) -> list[_RowsOfCall]:
        """Decodes first, then extends."""
        single = batch.extend_lens == 1
        decodes = len(single) if single.all() else int(single.argmin())
        every = np.arange(len(single))
        before, behind = slice(0, decodes), slice(decodes, None)
        parts = [_RowsOfCall(Role.DECODE, batch, before, every, before)]
        if batch.seen is None:
            parts.append(_RowsOfCall(Role.EXTEND, batch, behind, every, behind))
        else:
            for role, some in zip((Role.EXTEND, Role.WHOLE), cut(batch, decodes), strict=True):
                tokens = to_device(some.tokens, self.device)
                parts.append(_RowsOfCall(role, some.batch, slice(None), some.rows, tokens))
        return [part for part in parts if len(part.batch.extend_lens[part.rows])]


def refusal(
    kinds: Sequence[AttentionKind], dtype: torch.dtype, kv_dtype: torch.dtype
) -> str | None:
    """Why flashinfer cannot serve a model with these layers in these types; None if it can."""
    if dtype not in (torch.bfloat16, torch.float16):
        return f"it has no kernels for {dtype}"
    reasons = (
        latent_refusal(kind, dtype, kv_dtype) if kind.latent else kind.refusal() for kind in kinds
    )
    return next(filter(None, reasons), None)


def _multiprocessors(device: torch.device) -> int:
    if device.type == "cpu":
        return CPU_MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


def _paged(pool: TokenToKVPool, index: int, page_size: int) -> tuple[Tensor, Tensor]:
    """[pages, page_size, kv_heads, head_dim or v_head_dim] each"""
    k, v = pool.k[index], pool.v[index]
    return k.view(-1, page_size, *k.shape[1:]), v.view(-1, page_size, *v.shape[1:])
