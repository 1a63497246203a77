"""flashinfer's attention to latents, written for the CPU from its documentation and its checks.

Version 0.7.2 validates plans in `mla/_batch_mla/_backends/_fa_common.py`; what it refuses there on
a Hopper GPU is refused here.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.worker.cuda.flashinfer.signatures import bound, bound_class

MOST_WORK_ITEMS = 16384
KEYS_OF_A_TILE = 64


@dataclass(frozen=True)
class Metadata:
    """`MLAPlanMetadata`, of its form `csr`."""

    qo_indptr: Tensor
    kv_indptr: Tensor
    kv_indices: Tensor
    kv_len_arr: Tensor


@bound("flashinfer.mla.MLAPlanMetadata.csr")
def csr(qo_indptr: Tensor, kv_indptr: Tensor, kv_indices: Tensor, kv_len_arr: Tensor) -> Metadata:
    return Metadata(qo_indptr, kv_indptr, kv_indices, kv_len_arr)


@bound_class("flashinfer.mla.BatchMLAPagedAttentionWrapper")
class Latents:
    """`BatchMLAPagedAttentionWrapper`, with FlashAttention 2 or 3."""

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        use_cuda_graph: bool = False,
        qo_indptr: Tensor | None = None,
        kv_indptr: Tensor | None = None,
        kv_indices: Tensor | None = None,
        kv_len_arr: Tensor | None = None,
        backend: str = "auto",
    ) -> None:
        assert backend in ("fa2", "fa3"), "others choose by what they find, or want dense tables"
        assert float_workspace_buffer.dtype == torch.uint8
        assert len(float_workspace_buffer) >= 128 * 2**20
        self._is_fixed, self._workspace = use_cuda_graph, float_workspace_buffer
        self._buffers = [qo_indptr, kv_indptr, kv_indices, kv_len_arr]
        assert all((buffer is not None) == use_cuda_graph for buffer in self._buffers)
        self._planned = False

    def plan(
        self,
        *,
        metadata: Metadata,
        num_heads: int,
        head_dim_ckv: int,
        head_dim_kpe: int,
        page_size: int,
        causal: bool,
        sm_scale: float,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
        query_layout: str | None = None,
        kv_cache_layout: str | None = None,
    ) -> None:
        qo, indptr, lengths = metadata.qo_indptr, metadata.kv_indptr, metadata.kv_len_arr
        arrays = (qo, indptr, metadata.kv_indices, lengths)
        assert all(array.dtype == torch.int32 and array.is_contiguous() for array in arrays)
        # Read on the host in each plan: from a device it would wait.
        assert all(array.device.type == "cpu" for array in (qo, indptr, lengths))
        assert qo[0] == 0 and indptr[0] == 0 and len(qo) == len(indptr) == len(lengths) + 1
        assert (lengths <= indptr.diff() * page_size).all() and (lengths > 0).all()
        assert int(indptr[-1]) <= len(metadata.kv_indices)
        assert head_dim_ckv in (128, 256, 512) and head_dim_kpe % 64 == 0
        assert q_data_type in (torch.float16, torch.bfloat16) and kv_data_type == q_data_type
        assert query_layout == kv_cache_layout == "split"
        new = qo.diff()
        assert (new > 0).all() and (lengths >= new).all()
        _check_tiles(new.tolist(), lengths.tolist(), num_heads, causal=causal)
        self._keep(*arrays)
        self._tokens = int(qo[-1])
        self._sizes = (num_heads, head_dim_ckv, head_dim_kpe, page_size)
        self._causal, self._scale, self._dtype = causal, sm_scale, q_data_type
        self._planned = True

    def _keep(self, *arrays: Tensor) -> None:
        if not self._is_fixed:
            self._buffers = [array.clone() for array in arrays]
            return
        for index, (buffer, array) in enumerate(zip(self._buffers, arrays, strict=True)):
            assert buffer is not None and buffer.dtype == torch.int32
            if index == 2:
                assert len(array) <= len(buffer), "more pages than there is memory for"
                buffer[: len(array)].copy_(array)
            else:
                assert buffer.shape == array.shape
                buffer.copy_(array)

    def run(
        self,
        *,
        query: tuple[Tensor, Tensor] | None = None,
        kv_cache: tuple[Tensor, Tensor] | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        assert self._planned and query is not None and kv_cache is not None
        heads, latent, rotary, page_size = self._sizes
        for part, width in zip(query, (latent, rotary), strict=True):
            assert part.shape == (self._tokens, heads, width) and part.dtype == self._dtype
            assert part.stride(-1) == 1
        for part, width in zip(kv_cache, (latent, rotary), strict=True):
            assert part.shape[1:] == (page_size, width) and part.dtype == self._dtype
            assert part.stride(-1) == 1
        assert out is not None and out.shape == (self._tokens, heads, latent)
        assert out.dtype == self._dtype and out.is_contiguous()
        self._attend(query, kv_cache, out)
        return out

    def _attend(
        self, query: tuple[Tensor, Tensor], kv_cache: tuple[Tensor, Tensor], out: Tensor
    ) -> None:
        arrays: Any = self._buffers
        self.compute(arrays, query, kv_cache, out)

    def compute(
        self,
        arrays: tuple[Tensor, Tensor, Tensor, Tensor],
        query: tuple[Tensor, Tensor],
        kv_cache: tuple[Tensor, Tensor],
        out: Tensor,
    ) -> None:
        """What the kernel does."""
        qo, indptr, indices, lengths = arrays
        for row, count in enumerate(lengths.tolist()):
            tokens = slice(int(qo[row]), int(qo[row + 1]))
            pages = indices[int(indptr[row]) : int(indptr[row + 1])].long()
            latents, rotated = (part[pages].flatten(0, 1)[:count].float() for part in kv_cache)
            plain, turned = (part[tokens].float() for part in query)
            scores = torch.einsum("qhd,kd->qhk", plain, latents)
            scores += torch.einsum("qhd,kd->qhk", turned, rotated)
            if self._causal:
                queries = torch.arange(count - len(plain), count)[:, None, None]
                scores.masked_fill_(torch.arange(count) > queries, -torch.inf)
            weights = (scores * self._scale).softmax(-1)
            out[tokens] = torch.einsum("qhk,kd->qhd", weights, latents).to(out.dtype)


def _check_tiles(new: list[int], lengths: list[int], heads: int, *, causal: bool) -> None:
    """`_fa_plan_work_count` without splits, and `_validate_fa_causal_tile_bound`."""
    tile = 128 if sum(new) * heads // len(new) > 64 else 64
    assert sum(-(-count * heads // tile) for count in new) <= MOST_WORK_ITEMS
    if not causal or tile % heads == 0:
        return
    for count, length in zip(new, lengths, strict=True):
        for end in range(tile, count * heads, tile):
            query, rest = divmod(end, heads)
            key = length - count + query
            is_missed = rest and query < count and key < length and key % KEYS_OF_A_TILE == 0
            assert not is_missed, "a tile would miss the last key that it sees"
