"""Calls flashinfer: its wrappers, set up for our layers and batches.

A wrapper is planned once per batch, from arrays on the host, and then runs once per layer. Planning
fills a pinned buffer of the wrapper and starts its copy to the device. The arrays that are passed
to a plan are copied in the same way, so they are pinned as well (`PinnedRows`): for pageable memory
the driver would first wait for the device.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.backend import LayerKV
from pando_worker.attention.flashinfer.fp8_queries import QueryQuantizer, quantized_queries
from pando_worker.attention.flashinfer.kind import AttentionKind, Formats
from pando_worker.attention.flashinfer.library import Library
from pando_worker.attention.paged_rows import PagedRows
from pando_worker.attention.staging import Staging
from pando_worker.batch import Int32

INT_WORKSPACE_BYTES = 8 * 2**20  # flashinfer's own default
# Each call has as much pinned memory, and there is one for each size of a graph. A decode takes
# about 20 bytes a tile, of which there are at most two a row, or two a multiprocessor.
DECODE_INT_WORKSPACE_BYTES = 2**20
CPU_MULTIPROCESSORS = 132  # of a Hopper GPU, for tests on the CPU
# From this many query heads per KV head a decode is faster on tensor cores (SGLang and vLLM use the
# same value); with fewer, most of their rows are empty. The other kernel exists for groups of 1 to
# 4, 6, 8 and 16.
TENSOR_CORE_GROUP = 4


class Role(Enum):
    DECODE = "one new token per row"
    EXTEND = "new tokens at the end of each row"
    SHARED = "all tokens of a row see all its keys"
    WHOLE = "an image's tokens see each other, and what is before them"


@dataclass(frozen=True, slots=True)
class Memory:
    """Device memory that calls share; they can, because kernels run one after another."""

    workspace: Tensor
    int_workspace: Tensor  # separate for each call that is planned in the same batch

    @classmethod
    def new(cls, workspace: Tensor, int_bytes: int = INT_WORKSPACE_BYTES) -> "Memory":
        return cls(workspace, workspace.new_empty(int_bytes))


@dataclass(frozen=True, slots=True)
class FixedRows:
    """Device memory for the rows of a call whose kernels are captured in a CUDA graph."""

    new_indptr: Tensor  # int32 [rows + 1]
    indptr: Tensor  # int32 [rows + 1]
    pages: Tensor  # int32 [largest number of listed pages]
    last_lens: Tensor  # int32 [rows]

    @classmethod
    def new(cls, rows: int, pages: Tensor) -> "FixedRows":
        def empty(size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.int32, device=pages.device)

        return cls(empty(rows + 1), empty(rows + 1), pages, empty(rows))


class PinnedRows(NamedTuple):
    """What a plan reads of its rows, int32, in pinned memory that does not change before its copies
    have ended.

    Attributes:
        new_indptr: [rows + 1], the start of each row's new tokens
        indptr, last_lens, lengths: as of `PagedRows`
    """

    new_indptr: Tensor
    indptr: Tensor
    last_lens: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, rows: PagedRows, new_indptr: Int32, staging: Staging) -> "PinnedRows":
        return cls(*staging.pinned(new_indptr, rows.indptr, rows.last_lens, rows.lengths))


class AttentionCall(Protocol):
    """A kernel's call for one kind of layer."""

    def plan(self, rows: PinnedRows, pages: Tensor) -> None:
        """
        Args:
            pages: int32, all that the rows list; on the device, as flashinfer copies others to
                fixed memory only after waiting
        """
        ...

    def run(
        self,
        q: Tensor,
        paged: LayerKV,
        sinks: Tensor | None,
        out: Tensor,
        lse: Tensor | None = None,
    ) -> None:
        """
        Args:
            q: [new tokens, heads, q_dim]
            paged: [pages, page_size, kv_heads, head_dim or v_head_dim] each
            sinks: float32 [heads]
            out: [new tokens, heads, v_head_dim], filled
            lse: float32 [new tokens, heads], filled: binary logarithms of the softmax's sums
        """
        ...


class KernelCall:
    """An `AttentionCall`: a flashinfer wrapper for one kind of layer and one role."""

    def __init__(
        self,
        library: Library,
        kind: AttentionKind,
        role: Role,
        formats: Formats,
        memory: Memory,
        fixed: FixedRows | None = None,
        *,
        is_fa3: bool = False,
        quantizer: QueryQuantizer = quantized_queries,
    ) -> None:
        """
        Args:
            is_fa3: whether to run FlashAttention 3, which `has_fa3` must allow
            quantizer: of queries, for FlashAttention 3 with keys in e4m3
            fixed: if given, the call is always planned for the same number of rows and its kernels
                may be captured
        """
        self._kind, self._role, self._formats = kind, role, formats
        self._backend = "auto" if is_fa3 else "fa2"  # auto is FlashAttention 3 where it can be
        takes_fp8 = is_fa3 and formats.kv_dtype == torch.float8_e4m3fn
        self._quantizer = quantizer if takes_fp8 else None
        # Without fixed memory the wrapper for decodes copies an array of its own from pageable
        # memory in each plan, which waits for the device.
        self._is_decode = (
            role is Role.DECODE
            and fixed is not None
            and not kind.sinks
            and kind.head_dim == kind.v_head_dim
        )
        self._sizes = kind.heads, kind.kv_heads, kind.head_dim, formats.page_size
        self._options = self._plan_options()
        self._wrapper = self._make(library, memory.workspace, fixed)
        self._wrapper.reset_workspace_buffer(memory.workspace, memory.int_workspace)

    def plan(self, rows: PinnedRows, pages: Tensor) -> None:
        if self._is_decode:
            self._wrapper.plan(
                rows.indptr,
                pages,
                rows.last_lens,
                *self._sizes,
                seq_lens=rows.lengths,
                **self._options,
            )
            return
        self._wrapper.plan(
            rows.new_indptr,
            rows.indptr,
            pages,
            rows.last_lens,
            *self._sizes,
            seq_lens=rows.lengths,
            **self._options,
        )

    def _plan_options(self) -> dict[str, Any]:
        """What is the same in all plans."""
        kind, formats = self._kind, self._formats
        options: dict[str, Any] = {
            "window_left": -1 if kind.window is None else kind.window - 1,
            "logits_soft_cap": kind.soft_cap,
            "sm_scale": kind.scale,
            "q_data_type": formats.dtype if self._quantizer is None else formats.kv_dtype,
            "kv_data_type": formats.kv_dtype,
            "o_data_type": formats.dtype,
        }
        if self._is_decode:
            return options
        causal = self._role not in (Role.SHARED, Role.WHOLE)
        return options | {
            "head_dim_vo": kind.v_head_dim,
            "causal": causal,
            # Parts of split rows leave out keys then (flashinfer's issue 4972).
            "disable_split_kv": not causal and kind.window is not None,
        }

    def run(
        self,
        q: Tensor,
        paged: LayerKV,
        sinks: Tensor | None,
        out: Tensor,
        lse: Tensor | None = None,
    ) -> None:
        k_scale, v_scale = paged.scales
        options: dict[str, Any] = {"out": out, "lse": lse, "return_lse": lse is not None}
        if v_scale != 1.0:
            options["v_scale"] = v_scale
        extra: tuple[Any, ...] = ()
        if sinks is not None:  # the only kernels that are given the scale of scores here
            extra = sinks, self._kind.scale * k_scale
        elif k_scale != 1.0:
            options["k_scale"] = k_scale
        if self._quantizer is not None:
            q, q_scales = self._quantizer(q)
            extra = q_scales, None, None  # those of keys and values are numbers, as above
        self._wrapper.run(q, (paged.k, paged.v), *extra, **options)

    def _make(self, library: Library, workspace: Tensor, fixed: FixedRows | None) -> Any:
        kind, formats = self._kind, self._formats
        if self._is_decode:
            assert fixed is not None
            narrow = formats.kv_dtype.itemsize == 1  # the other kernel does not support fp8
            tensor_cores = narrow or kind.heads // kind.kv_heads >= TENSOR_CORE_GROUP
            return library.Decode(
                workspace,
                "NHD",
                use_tensor_cores=tensor_cores,
                backend="fa2",
                **_decode_buffers(fixed),
            )
        backend = self._backend
        buffers = {} if fixed is None else _prefill_buffers(fixed)
        if not kind.sinks:
            return library.Prefill(workspace, "NHD", backend=backend, **buffers)
        return library.SinkPrefill(
            workspace,
            "NHD",
            backend=backend,
            q_data_type=formats.dtype,
            kv_data_type=formats.kv_dtype,
            head_dim_qk=kind.head_dim,
            head_dim_vo=kind.v_head_dim,
            window_left=-1 if kind.window is None else kind.window - 1,
            **buffers,
        )


def _decode_buffers(fixed: FixedRows) -> dict[str, Any]:
    return {
        "use_cuda_graph": True,
        "paged_kv_indptr_buffer": fixed.indptr,
        "paged_kv_indices_buffer": fixed.pages,
        "paged_kv_last_page_len_buffer": fixed.last_lens,
    }


def _prefill_buffers(fixed: FixedRows) -> dict[str, Any]:
    return {
        "use_cuda_graph": True,
        "qo_indptr_buf": fixed.new_indptr,
        "paged_kv_indptr_buf": fixed.indptr,
        "paged_kv_indices_buf": fixed.pages,
        "paged_kv_last_page_len_buf": fixed.last_lens,
    }


class Appends:
    """Stores new keys and values with one kernel, treating each token as a page of one slot.

    Args:
        most: largest number of tokens in a step
    """

    def __init__(self, library: Library, most: int, device: torch.device) -> None:
        self._append = library.append_paged_kv_cache
        self._numbers = torch.arange(most + 1, dtype=torch.int32, device=device)
        self._zeros = torch.zeros(most, dtype=torch.int32, device=device)
        self._ones = torch.ones(most, dtype=torch.int32, device=device)

    def store(self, k: Tensor, v: Tensor, pool: LayerKV, slots: Tensor) -> None:
        """
        Args:
            k, v: [num_tokens, kv_heads, head_dim], in the dtype of `pool`
            pool: with scales of 1
            slots: int32 [num_tokens]
        """
        count = len(slots)
        self._append(
            k,
            v,
            self._numbers[:count],
            self._zeros[:count],
            (pool.k[:, None], pool.v[:, None]),
            slots,
            self._numbers[: count + 1],
            self._ones[:count],
            "NHD",
        )


def new_indptr(extend_lens: Int32) -> Int32:
    """Row starts, [rows + 1], from lengths, [rows]."""
    indptr = np.zeros(len(extend_lens) + 1, dtype=np.int32)
    np.cumsum(extend_lens, out=indptr[1:])
    return indptr
