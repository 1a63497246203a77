"""Attention on CUDA with flashinfer's kernels, which read the paged pool directly.

The leading rows of a batch with one new token are decodes, the others extends. Each part has its
own kernel: one for many queries per row wastes most of its work on a single query. Rows that share
long prefixes attend to them together (see `shared_prefixes`). Where an image's tokens see each
other, extends are cut into text and images (see `segments`). Layers that differ in shape, scale,
window, soft cap or sinks have separate plans.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer, page_numbers
from pando_worker.attention.flashinfer_calls import (
    CPU_MULTIPROCESSORS,
    DECODE_INT_WORKSPACE_BYTES,
    Appends,
    AttentionKind,
    FlashinferUnavailable,
    Formats,
    KernelCall,
    Library,
    Memory,
    Role,
    Staging,
    new_indptr,
    workspace_bytes,
)
from pando_worker.attention.kv_pool import TokenToKVPool, kv_cell_bytes
from pando_worker.attention.paged_rows import PagedRows, first_pages_seen, paged_rows
from pando_worker.attention.segments import cut
from pando_worker.attention.shared_prefixes import SharedPrefix, shared_prefixes
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
    """The calls of a step for one kind of layer, each with its part's tokens."""

    calls: list[tuple[KernelCall, slice | Tensor]]
    shared: KernelCall | None  # None if no rows attend together


class FlashinferAttention:
    """An `AttentionBackend` for half-precision models on CUDA."""

    def __init__(
        self,
        pool: TokenToKVPool,
        page_size: int,
        dtype: torch.dtype,
        most_tokens: int,
        library: Library | None = None,
        *,
        fixed_rows: int = 256,
        images_are_whole: bool = False,
    ) -> None:
        """
        Args:
            dtype: of queries, new keys and values, and results
            most_tokens: largest number of tokens in a step
            fixed_rows: largest number of rows in a CUDA graph
            images_are_whole: whether an image's tokens see each other

        Raises:
            FlashinferUnavailable: it is not installed or has no kernels for these layers.
        """
        self._kinds = {layer.index: AttentionKind.of(layer) for layer in pool.layers}
        # Layers of one kind have one window, so either all of them release pages or none does.
        self.released = {kind: index in pool.windowed for index, kind in self._kinds.items()}
        if reason := refusal(list(self._kinds.values()), dtype):
            raise FlashinferUnavailable(reason)
        self.pool, self.library = pool, library or Library()
        self.device = pool.k[0].device
        self.formats = Formats(dtype, pool.k[0].dtype, page_size)
        self.kinds = list(dict.fromkeys(self._kinds.values()))
        self.staging = Staging(self.device)
        self._images_are_whole = images_are_whole
        self.fixed_rows = fixed_rows
        size = workspace_bytes(self.kinds, fixed_rows, _multiprocessors(self.device))
        workspace = torch.zeros(size, dtype=torch.uint8, device=self.device)
        self.memories = {  # for decodes
            kind: Memory.new(workspace, DECODE_INT_WORKSPACE_BYTES) for kind in self.kinds
        }
        self._calls = {kind: self._make_calls(kind) for kind in self.kinds}
        self._paged = [_paged(pool, layer.index, page_size) for layer in pool.layers]
        self._appends = None
        if self.formats.kv_dtype == dtype and all(k.head_dim == k.v_head_dim for k in self.kinds):
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
        self._shared: Tensor | None = None  # tokens that attend together; None: all, in order
        self._slots: dict[bool, Tensor] = {}  # of new tokens, by whether pages are released

    @property
    def slot_dtype(self) -> torch.dtype:
        """That storing takes."""
        return torch.int64 if self._appends is None else torch.int32

    def plan(self, batch: ForwardBatch) -> None:
        prefixes = self.worth_sharing(batch, CASCADE_BYTES)
        self.staging.wait()
        self._slots = {
            released: to_device(page_numbers(batch, released)[1], self.device).to(self.slot_dtype)
            for released in set(self.released.values())
        }
        parts = self._parts(batch)
        for kind in self.kinds:
            calls, released = self._calls[kind], self.released[kind]
            together = np.zeros(len(batch.seq_lens), dtype=np.int64)  # pages of shared prefixes
            shared = calls.get(Role.SHARED) if prefixes else None
            if shared is not None:
                for prefix in prefixes:
                    together[prefix.rows] = prefix.pages
                shared.plan(*_of_prefixes(batch, prefixes))
            for part in parts:
                firsts = first_pages_seen(part.batch, kind.window)
                firsts = np.maximum(firsts, together[part.row_of])
                plan_rows(calls[part.role], part.batch, part.rows, firsts, released)
            self._plans[kind] = _Plan([(calls[p.role], p.tokens) for p in parts], shared)
        if prefixes:
            tokens = _tokens_of(batch, prefixes)
            in_order = np.array_equal(tokens, np.arange(len(batch.input_ids)))
            self._shared = None if in_order else to_device(tokens, self.device)
        self.staging.mark()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer) -> Tensor:
        kind = self._kinds[layer.index]
        self.pool.arrive(layer.index)
        self.store(k, v, layer, self._slots[self.released[kind]])
        plan, paged = self._plans[kind], self._paged[layer.index]
        sinks = self.sinks_of(layer)
        out = q.new_empty(len(q), layer.heads, layer.v_head_dim)
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
            return self._merge_shared(plan.shared, q, paged, out, lse)
        return out

    def store(self, k: Tensor, v: Tensor, layer: AttentionLayer, slots: Tensor) -> None:
        """Store new keys and values in the pool; `slots`, [num_tokens], have `slot_dtype`."""
        if self._appends is None:
            self.pool.store(layer.index, slots, k, v)
        else:
            pool = self.pool.k[layer.index], self.pool.v[layer.index]
            self._appends.store(k, v, pool, slots)

    def run_decodes(self, call: KernelCall, q: Tensor, layer: AttentionLayer) -> Tensor:
        """Attention for one token per row, with a planned call."""
        out = q.new_empty(len(q), layer.heads, layer.v_head_dim)
        call.run(q, self._paged[layer.index], self.sinks_of(layer), out)
        return out

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
        self, call: KernelCall, q: Tensor, paged: tuple[Tensor, Tensor], out: Tensor, lse: Tensor
    ) -> Tensor:
        """`out` and `lse` cover each row's own pages; the result covers all of its pages."""
        tokens = self._shared
        some_q, some_out, some_lse = (
            x if tokens is None else x.index_select(0, tokens) for x in (q, out, lse)
        )
        above, above_lse = torch.empty_like(some_out), torch.empty_like(some_lse)
        call.run(some_q, paged, None, above, above_lse)
        merged: Tensor = self.library.merge_state(some_out, some_lse, above, above_lse)[0]
        return merged if tokens is None else out.index_copy_(0, tokens, merged)

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

    def _make_calls(self, kind: AttentionKind) -> dict[Role, KernelCall]:
        decodes = self.memories[kind]
        wanted = {Role.SHARED: kind.can_share, Role.WHOLE: self._images_are_whole}
        calls = {}
        for role in Role:
            if wanted.get(role, True):
                memory = decodes if role is Role.DECODE else Memory.new(decodes.workspace)
                calls[role] = KernelCall(self.library, kind, role, self.formats, memory)
        return calls


def refusal(kinds: Sequence[AttentionKind], dtype: torch.dtype) -> str | None:
    """Why flashinfer cannot serve a model with these layers in this dtype; None if it can."""
    if dtype not in (torch.bfloat16, torch.float16):
        return f"it has no kernels for {dtype}"
    return next((reason for kind in kinds if (reason := kind.refusal())), None)


def plan_rows(
    call: KernelCall, batch: ForwardBatch, rows: slice, firsts: Int64, released: bool
) -> None:
    """Plan `call` for some rows of a batch, each from its own first page.

    Args:
        released: for layers that release pages behind their window
    """
    call.plan(paged_rows(batch, rows, firsts, released), new_indptr(batch.extend_lens[rows]))


def _of_prefixes(batch: ForwardBatch, prefixes: list[SharedPrefix]) -> tuple[PagedRows, Int32]:
    """Each group as one row with the new tokens of all its rows."""
    lengths = np.array([prefix.pages for prefix in prefixes], dtype=np.int32)
    tokens = [int(batch.extend_lens[prefix.rows].sum()) for prefix in prefixes]
    rows = PagedRows(
        indptr=new_indptr(lengths),
        pages=np.concatenate([batch.page_table[p.rows[0], : p.pages] for p in prefixes]),
        last_lens=np.full(len(prefixes), batch.page_size, dtype=np.int32),
        lengths=lengths * batch.page_size,
    )
    return rows, new_indptr(np.array(tokens, dtype=np.int32))


def _tokens_of(batch: ForwardBatch, prefixes: list[SharedPrefix]) -> Int64:
    """The tokens of the groups' rows, group after group."""
    starts = new_indptr(batch.extend_lens).astype(np.int64)
    ranges = [np.arange(starts[row], starts[row + 1]) for p in prefixes for row in p.rows]
    return np.concatenate(ranges)


def _multiprocessors(device: torch.device) -> int:
    if device.type == "cpu":
        return CPU_MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


def _paged(pool: TokenToKVPool, index: int, page_size: int) -> tuple[Tensor, Tensor]:
    """[pages, page_size, kv_heads, head_dim or v_head_dim] each"""
    k, v = pool.k[index], pool.v[index]
    return k.view(-1, page_size, *k.shape[1:]), v.view(-1, page_size, *v.shape[1:])
