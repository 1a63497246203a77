"""The functions of flashinfer 0.7 that are used, written for the CPU from its documentation.

The real library runs only on GPUs. This one computes in float32 and refuses everything that the
documentation does not allow, so that plans, masks, page lists and merges can be tested on any
machine. It refuses as on a Hopper GPU, whose FlashAttention 3 allows less than FlashAttention 2.
Every call must fit the signatures of the real one. `tests/gpu` runs the same tests with the real
one.
"""

from typing import Any

import torch
from torch import Tensor

from tests.worker.cuda.flashinfer.comm_by_the_book import (
    allreduce_fusion,
    create_allreduce_fusion_workspace,
)
from tests.worker.cuda.flashinfer.gemm_by_the_book import (
    fp8_blockscale_gemm_sm90,
    gemm_fp8_nt_groupwise,
)
from tests.worker.cuda.flashinfer.mla_by_the_book import Latents, csr
from tests.worker.cuda.flashinfer.ops_by_the_book import (
    apply_rope_with_cos_sin_cache,
    apply_rope_with_cos_sin_cache_inplace,
    fused_add_rmsnorm,
    gelu_tanh_and_mul,
    gemma_fused_add_rmsnorm,
    gemma_rmsnorm,
    rmsnorm,
    silu_and_mul,
    top_p_renorm_probs,
)
from tests.worker.cuda.flashinfer.signatures import bound, bound_class

MULTIPROCESSORS = 132  # of a Hopper GPU

# Of queries and keys, and of values: those that FlashAttention 3 takes.
FA3_HEAD_DIMS = {(64, 64), (128, 128), (256, 256), (192, 128)}
E4M3 = torch.float8_e4m3fn


def _check(array: Tensor, size: int) -> None:
    assert array.dtype == torch.int32 and array.shape == (size,), (array.dtype, array.shape, size)
    assert array.is_contiguous()


@bound_class("flashinfer.BatchPrefillWithPagedKVCacheWrapper")
class Prefill:
    """`BatchPrefillWithPagedKVCacheWrapper`"""

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: Tensor | None = None,
        paged_kv_indptr_buf: Tensor | None = None,
        paged_kv_indices_buf: Tensor | None = None,
        paged_kv_last_page_len_buf: Tensor | None = None,
        backend: str = "auto",
    ) -> None:
        assert kv_layout == "NHD" and backend in ("auto", "fa2", "fa3")
        assert float_workspace_buffer.dtype == torch.uint8
        self._is_fixed, self._backend = use_cuda_graph, backend
        self._workspace = float_workspace_buffer
        self._qo, self._indptr = qo_indptr_buf, paged_kv_indptr_buf
        self._indices, self._last = paged_kv_indices_buf, paged_kv_last_page_len_buf
        self._planned = False

    def reset_workspace_buffer(
        self, float_workspace_buffer: Tensor, int_workspace_buffer: Tensor
    ) -> None:
        assert int_workspace_buffer.dtype == torch.uint8
        self._workspace, self._int_workspace = float_workspace_buffer, int_workspace_buffer

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: int | None = None,
        causal: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        q_data_type: Any = torch.float16,
        kv_data_type: torch.dtype | None = None,
        o_data_type: torch.dtype | None = None,
        seq_lens: Tensor | None = None,
        disable_split_kv: bool = False,
    ) -> None:
        rows = len(qo_indptr) - 1
        _check(qo_indptr, rows + 1)
        _check(paged_kv_indptr, rows + 1)
        _check(paged_kv_last_page_len, rows)
        _check(paged_kv_indices, int(paged_kv_indptr[-1]))
        pages = paged_kv_indptr.diff()
        assert (pages > 0).all() and (qo_indptr.diff() > 0).all()
        assert ((paged_kv_last_page_len >= 1) & (paged_kv_last_page_len <= page_size)).all()
        lengths = (pages - 1) * page_size + paged_kv_last_page_len
        assert seq_lens is None or torch.equal(seq_lens, lengths)
        self._tokens = int(qo_indptr[-1])
        self._keep(qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
        self._heads = (num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo or head_dim_qk)
        self._page_size, self._causal = page_size, causal
        self._scale = head_dim_qk**-0.5 if sm_scale is None else sm_scale
        self._window, self._cap = window_left, logits_soft_cap or 0.0
        self._dtypes = (q_data_type, kv_data_type or q_data_type)
        self._o_dtype = o_data_type or q_data_type
        assert self._o_dtype.itemsize == 2, "results in fp8 are not supported"
        if q_data_type == E4M3:
            self._check_fp8_queries()
        if not self._is_fa3:
            if not causal and window_left >= 0:
                assert disable_split_kv, "the parts of split rows leave out keys (issue 4972)"
            self._check_workspace(qo_indptr.diff(), pages, is_split=not disable_split_kv)
        self._planned = True

    def _check_fp8_queries(self) -> None:
        """jit/attention/modules.py, batch_prefill_fp8_sm90.cu and hopper/variants.cuh; windows have
        hung (issue 3578)."""
        assert self._is_fa3 and self._dtypes[1] == E4M3
        dim, v_dim = self._heads[2:]
        assert dim == v_dim and dim in (64, 128, 256)
        assert self._cap == 0.0, "the kernel leaves out soft caps"
        assert self._window < 0

    def _check_workspace(self, new: Tensor, pages: Tensor, *, is_split: bool) -> None:
        """`PrefillPlan` of scheduler.cuh, version 0.7.0: whether partial results and indices have
        room. Windows are left out, which only shorten rows."""
        heads, kv_heads, _, v_dim = self._heads
        group, rows = heads // kv_heads, len(new)
        packed = group if self._is_fixed else int(new.sum()) * group // rows
        tile = 16 if packed <= 16 else 64 if packed <= 64 or v_dim >= 256 else 128
        tiles = -(-new * group // tile)
        most = 2 * MULTIPROCESSORS // kv_heads
        chunk, longest = max(128 // self._page_size, 1), int(pages.max())
        while chunk < longest and int((tiles * -(-pages // chunk)).sum()) > most:
            chunk += 1
        padded = int((tiles * -(-pages // chunk)).sum())
        if self._is_fixed:
            total = -(-int(new.sum()) * group // tile) + rows - 1
            assert padded <= max(most, total)
            padded = max(most, total)
        # Tiles' requests, queries and keys; rows' starts; whether a tile is there; aligned.
        needed = 13 * padded + 4 * (rows + int(new.sum())) + 128
        assert needed <= len(self._int_workspace), (needed, len(self._int_workspace))
        if not is_split or (not self._is_fixed and chunk >= longest):
            return
        needed = 4 * heads * padded * tile * (v_dim + 1)
        assert needed <= len(self._workspace), (needed, len(self._workspace))

    @property
    def _is_fa3(self) -> bool:
        """`determine_attention_backend` on Hopper; "auto" keeps its first choice."""
        if self._backend != "auto":
            return self._backend == "fa3"
        q_dtype, kv_dtype = self._dtypes
        return kv_dtype.itemsize == q_dtype.itemsize and self._heads[2:] in FA3_HEAD_DIMS

    def _keep(self, qo: Tensor, indptr: Tensor, indices: Tensor, last: Tensor) -> None:
        if not self._is_fixed:
            arrays = (qo, indptr, indices, last)
            self._qo, self._indptr, self._indices, self._last = (a.clone() for a in arrays)
            return
        assert self._qo is not None and self._indptr is not None
        assert self._indices is not None and self._last is not None
        assert len(indices) <= len(self._indices), "more pages than there is memory for"
        self._qo.copy_(qo)
        self._indptr.copy_(indptr)
        self._last.copy_(last)
        self._indices[: len(indices)].copy_(indices)

    def run(
        self,
        q: Tensor,
        paged_kv_cache: tuple[Tensor, Tensor],
        *scales: Tensor | None,
        k_scale: float | None = None,
        v_scale: float | None = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: bool = False,
    ) -> Any:
        scale = self._scale * (1.0 if k_scale is None else k_scale)
        asked = lse if return_lse else None
        q_scales = None
        if q.dtype == E4M3:  # by flashinfer ignored unless there are three
            q_scales, *others = scales
            assert len(others) == 2 and others[0] is None and others[1] is None
            assert q_scales is not None and q_scales.dtype == torch.float32
            assert q_scales.shape == (q.shape[1],) and q_scales.is_contiguous()
        else:
            assert not scales
        return self._attend(q, paged_kv_cache, out, asked, None, scale, v_scale, q_scales)

    def _attend(
        self,
        q: Tensor,
        paged: tuple[Tensor, Tensor],
        out: Tensor | None,
        lse: Tensor | None,
        sinks: Tensor | None,
        scale: float,
        v_scale: float | None,
        q_scales: Tensor | None = None,
    ) -> Tensor:
        self._check_run(q, paged)
        if out is None:
            out = q.new_zeros(len(q), *self._heads[:1], self._heads[3], dtype=self._o_dtype)
        assert out.dtype == self._o_dtype
        assert out.shape == (len(q), self._heads[0], self._heads[3]) and out.is_contiguous()
        assert lse is None or lse.is_contiguous()
        assert self._qo is not None and self._indptr is not None
        assert self._indices is not None and self._last is not None
        arrays = self._qo, self._indptr, self._indices, self._last
        self.compute(arrays, q, paged, out, lse, sinks, scale, q_scales)
        if v_scale is not None:  # a kernel of its own, whose results are rounded again
            out *= v_scale
        return out

    def _check_run(self, q: Tensor, paged: tuple[Tensor, Tensor]) -> None:
        assert self._planned
        heads, kv_heads, dim, v_dim = self._heads
        assert q.shape == (self._tokens, heads, dim) and q.dtype == self._dtypes[0]
        assert q.stride(-1) == 1
        for part, width in zip(paged, (dim, v_dim), strict=True):
            assert part.shape[1:] == (self._page_size, kv_heads, width)
            assert part.dtype == self._dtypes[1]
        if self._is_fa3:  # batch_prefill_sm90.cu
            k_strides, v_strides = (part.stride()[:2] for part in paged)
            assert k_strides == v_strides, "K and V must have the same page stride"

    def compute(
        self,
        arrays: tuple[Tensor, Tensor, Tensor, Tensor],
        q: Tensor,
        paged: tuple[Tensor, Tensor],
        out: Tensor,
        lse: Tensor | None,
        sinks: Tensor | None,
        scale: float,
        q_scales: Tensor | None = None,
    ) -> None:
        """What the kernel does.

        Args:
            arrays: starts of the rows' tokens and pages, the pages, tokens of the last ones
            q_scales: [heads], of queries in e4m3
        """
        qo, indptr, indices, last = arrays
        for row in range(len(last)):
            tokens = slice(int(qo[row]), int(qo[row + 1]))
            pages = indices[int(indptr[row]) : int(indptr[row + 1])].long()
            count = (len(pages) - 1) * self._page_size + int(last[row])
            k, v = (part[pages].flatten(0, 1)[:count].float() for part in paged)
            own = q[tokens].float()
            if q_scales is not None:
                own *= q_scales[:, None]
            result, total = self._row(own, k, v, sinks, scale)
            out[tokens] = result.to(out.dtype)
            if lse is not None:
                lse[tokens] = total.log2().float()

    def _row(
        self, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, scale: float
    ) -> tuple[Tensor, Tensor]:
        """[queries, heads, v_dim], and sums of the softmax, [queries, heads]."""
        group = q.shape[1] // k.shape[1]
        k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
        scores = torch.einsum("qhd,khd->qhk", q, k) * scale
        if self._cap > 0:
            scores = self._cap * torch.tanh(scores / self._cap)
        query = torch.arange(len(k) - len(q), len(k))[:, None, None]
        key = torch.arange(len(k))
        visible = key <= query if self._causal else torch.ones_like(key <= query)
        if self._window >= 0:
            visible = visible & (key >= query - self._window)
        # Values that a kernel need not read must have no effect.
        weights = torch.where(visible, scores, -torch.inf).exp()
        total = weights.sum(-1)
        if sinks is not None:
            total = total + sinks.exp()
        if self._dtypes[0] == E4M3:  # products with values are in e4m3, too
            most = weights.amax(-1, keepdim=True)
            weights = (weights / most * 448.0).to(E4M3).float() * (most / 448.0)
        v = torch.where(weights.sum((0, 1))[:, None, None] > 0, v, 0.0)
        return torch.einsum("qhk,khd->qhd", weights, v) / total[..., None], total


@bound_class("flashinfer.attention.BatchAttentionWithAttentionSinkWrapper")
class SinkPrefill(Prefill):
    """`BatchAttentionWithAttentionSinkWrapper`"""

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        *,
        q_data_type: torch.dtype = torch.bfloat16,
        kv_data_type: torch.dtype = torch.bfloat16,
        head_dim_qk: int = 128,
        head_dim_vo: int = 128,
        window_left: int = -1,
        **options: Any,
    ) -> None:
        super().__init__(float_workspace_buffer, kv_layout, **options)
        self._made_for = (q_data_type, kv_data_type), head_dim_qk, head_dim_vo, window_left >= 0

    def run(  # type: ignore[override]
        self,
        q: Tensor,
        paged_kv_cache: tuple[Tensor, Tensor],
        sink: Tensor,
        sm_scale: float,
        *,
        v_scale: float | None = None,
        out: Tensor | None = None,
        lse: Tensor | None = None,
        return_lse: bool = False,
    ) -> Any:
        _, _, dim, v_dim = self._heads
        assert self._made_for == (self._dtypes, dim, v_dim, self._window >= 0)
        assert self._cap == 0.0, "the variant has no soft cap"
        assert sink.dtype == torch.float32 and sink.shape == (q.shape[1],)
        asked = lse if return_lse else None
        return self._attend(q, paged_kv_cache, out, asked, sink, sm_scale, v_scale)


@bound_class("flashinfer.BatchDecodeWithPagedKVCacheWrapper")
class Decode(Prefill):
    """`BatchDecodeWithPagedKVCacheWrapper`"""

    def __init__(
        self,
        float_workspace_buffer: Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: Tensor | None = None,
        paged_kv_indices_buffer: Tensor | None = None,
        paged_kv_last_page_len_buffer: Tensor | None = None,
        backend: str = "auto",
    ) -> None:
        # In each plan this wrapper copies an array of its own from pageable memory.
        assert use_cuda_graph, "without fixed memory a plan waits for the device"
        rows = None
        if paged_kv_last_page_len_buffer is not None:
            rows = torch.zeros(len(paged_kv_last_page_len_buffer) + 1, dtype=torch.int32)
        super().__init__(
            float_workspace_buffer,
            kv_layout,
            use_cuda_graph,
            rows,
            paged_kv_indptr_buffer,
            paged_kv_indices_buffer,
            paged_kv_last_page_len_buffer,
            backend=backend,
        )
        self._tensor_cores = use_tensor_cores

    def plan(  # type: ignore[override]
        self,
        indptr: Tensor,
        indices: Tensor,
        last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        **options: Any,
    ) -> None:
        assert self._tensor_cores or num_qo_heads // num_kv_heads in (1, 2, 3, 4, 6, 8, 16)
        assert self._tensor_cores or options["kv_data_type"].itemsize == 2
        rows = torch.arange(len(last_page_len) + 1, dtype=torch.int32)
        sizes = (num_qo_heads, num_kv_heads, head_dim, page_size)
        # For rows of one token this is the same as not causal.
        super().plan(rows, indptr, indices, last_page_len, *sizes, causal=True, **options)

    @property
    def _is_fa3(self) -> bool:
        return self._tensor_cores and super()._is_fa3


@bound("flashinfer.append_paged_kv_cache")
def append_paged_kv_cache(
    append_key: Tensor,
    append_value: Tensor,
    batch_indices: Tensor,
    positions: Tensor,
    paged_kv_cache: tuple[Tensor, Tensor],
    kv_indices: Tensor,
    kv_indptr: Tensor,
    kv_last_page_len: Tensor,
    kv_layout: str = "NHD",
) -> None:
    assert kv_layout == "NHD"
    for array in (batch_indices, positions, kv_indices, kv_indptr, kv_last_page_len):
        assert array.dtype == torch.int32 and array.is_contiguous()
    rows = batch_indices.long()
    page_size = paged_kv_cache[0].shape[1]
    pages = kv_indices[(kv_indptr[rows] + positions // page_size).long()].long()
    for new, cache in zip((append_key, append_value), paged_kv_cache, strict=True):
        assert new.dtype == cache.dtype
        cache[pages, (positions % page_size).long()] = new


@bound("flashinfer.merge_state")
def merge_state(v_a: Tensor, s_a: Tensor, v_b: Tensor, s_b: Tensor) -> tuple[Tensor, Tensor]:
    a, b = (s.double().exp2()[..., None] for s in (s_a, s_b))
    merged = (v_a.double() * a + v_b.double() * b) / (a + b)
    return merged.to(v_a.dtype), (a + b)[..., 0].log2().float()


class ByTheBook:
    """Replaces the worker's `Library`, and flashinfer for operations and sampling."""

    top_p_renorm_probs = staticmethod(top_p_renorm_probs)
    fp8_blockscale_gemm_sm90 = staticmethod(fp8_blockscale_gemm_sm90)
    gemm_fp8_nt_groupwise = staticmethod(gemm_fp8_nt_groupwise)

    create_allreduce_fusion_workspace = staticmethod(create_allreduce_fusion_workspace)
    allreduce_fusion = staticmethod(allreduce_fusion)
    rmsnorm = staticmethod(rmsnorm)
    fused_add_rmsnorm = staticmethod(fused_add_rmsnorm)
    gemma_rmsnorm = staticmethod(gemma_rmsnorm)
    gemma_fused_add_rmsnorm = staticmethod(gemma_fused_add_rmsnorm)
    silu_and_mul = staticmethod(silu_and_mul)
    gelu_tanh_and_mul = staticmethod(gelu_tanh_and_mul)
    apply_rope_with_cos_sin_cache = staticmethod(apply_rope_with_cos_sin_cache)
    apply_rope_with_cos_sin_cache_inplace = staticmethod(apply_rope_with_cos_sin_cache_inplace)

    Decode = Decode
    Prefill = Prefill
    SinkPrefill = SinkPrefill
    Latents = Latents
    csr = staticmethod(csr)
    append_paged_kv_cache = staticmethod(append_paged_kv_cache)
    merge_state = staticmethod(merge_state)
