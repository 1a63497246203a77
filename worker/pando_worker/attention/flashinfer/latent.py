"""flashinfer's attention to latents, which all heads of a row share (see `AttentionLayer.latent`).

Its kernels take the two parts of queries and keys as separate tensors. There are FlashAttention 2
and, on Hopper, 3; both put heads and new tokens into one tile and split keys, for decodes as for
prompts. Written for flashinfer 0.7.
"""

from typing import Any

import torch
from torch import Tensor

from pando_worker.attention.backend import LayerKV
from pando_worker.attention.flashinfer.calls import FixedRows, PinnedRows
from pando_worker.attention.flashinfer.kind import AttentionKind, Formats
from pando_worker.attention.flashinfer.library import Library


class LatentCall:
    """An `AttentionCall`: flashinfer's wrapper for one kind of layer."""

    def __init__(
        self,
        library: Library,
        kind: AttentionKind,
        formats: Formats,
        workspace: Tensor,
        fixed: FixedRows | None = None,
        *,
        is_fa3: bool,
    ) -> None:
        """
        Args:
            is_fa3: whether to run FlashAttention 3, which Hopper has
            fixed: as of `KernelCall`; its `last_lens` hold whole lengths here
        """
        self._library, self._kind, self._formats = library, kind, formats
        buffers: dict[str, Any] = {}
        if fixed is not None:
            buffers = {
                "use_cuda_graph": True,
                "qo_indptr": fixed.new_indptr,
                "kv_indptr": fixed.indptr,
                "kv_indices": fixed.pages,
                "kv_len_arr": fixed.last_lens,
            }
        self._wrapper = library.Latents(workspace, backend="fa3" if is_fa3 else "fa2", **buffers)

    def plan(self, rows: PinnedRows, pages: Tensor) -> None:
        kind, formats = self._kind, self._formats
        self._wrapper.plan(
            metadata=self._library.csr(rows.new_indptr, rows.indptr, pages, rows.lengths),
            num_heads=kind.heads,
            head_dim_ckv=kind.v_head_dim,
            head_dim_kpe=kind.head_dim,
            page_size=formats.page_size,
            causal=True,
            sm_scale=kind.scale,
            q_data_type=formats.dtype,
            kv_data_type=formats.kv_dtype,
            query_layout="split",
            kv_cache_layout="split",
        )

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
        """
        assert sinks is None and lse is None
        width = self._kind.v_head_dim
        # The only KV head has no dimension here.
        self._wrapper.run(
            query=(q[..., :width], q[..., width:]),
            kv_cache=(paged.v[:, :, 0], paged.k[:, :, 0]),
            out=out,
        )


def latent_refusal(kind: AttentionKind, dtype: torch.dtype, kv_dtype: torch.dtype) -> str | None:
    """Why flashinfer cannot compute these layers; None if it can."""
    if (kind.window, kind.soft_cap, kind.sinks) != (None, None, False):
        return "its kernels for latents have no windows, soft caps or sinks"
    if kind.v_head_dim not in (128, 256, 512) or kind.head_dim % 64:
        return f"it has no kernels for latents of {kind.v_head_dim} and {kind.head_dim}"
    if 128 % kind.heads:
        # A tile of 64 or 128 queries would end within a token's heads, and such a tile may miss the
        # last key that it sees.
        return f"its kernels for latents compute 1, 2, 4, ... or 128 heads, not {kind.heads}"
    if kv_dtype != dtype:
        return f"its kernels for latents are used with keys and values of {dtype} only"
    return None
