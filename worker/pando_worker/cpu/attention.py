"""`CpuAttention`: attention that reads the paged pool directly, without gathering keys."""

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer, page_numbers
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.batch import ForwardBatch
from pando_worker.cpu.kernels import Kernels


class CpuAttention:
    """An `AttentionBackend` for float32, over a pool of float32 or bfloat16, in C++.

    Attributes:
        kernels, threads: used to run it
        kinds: for the layers, each occurring value of "releases pages behind its window"
    """

    def __init__(self, kernels: Kernels, pool: TokenToKVPool, threads: int) -> None:
        self.kernels = kernels
        self._pool = pool
        self.threads = threads
        self._seen: Tensor | None = None  # `ForwardBatch.seen` of the planned batch
        self.kinds = dict.fromkeys(layer.index in pool.windowed for layer in pool.layers)

    def plan(self, batch: ForwardBatch) -> None:
        numbers = {kind: _tensors(batch, kind) for kind in self.kinds}
        lengths, extends = map(torch.from_numpy, (batch.seq_lens, batch.extend_lens))
        self.plan_on(numbers, lengths, extends, batch.page_size)
        self._seen = None if batch.seen is None else torch.from_numpy(batch.seen)

    def plan_on(
        self,
        numbers: dict[bool, tuple[Tensor, Tensor]],
        lengths: Tensor,
        extends: Tensor,
        page_size: int,
    ) -> None:
        """Like `plan`, from a batch's `seq_lens`, `extend_lens` and `page_numbers` for each of
        `kinds`. Their values may change later."""
        self._numbers, self._lengths, self._extends = numbers, lengths, extends
        self._page_size = page_size
        self._seen = None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer) -> Tensor:
        keys, values = self._pool.k[layer.index], self._pool.v[layer.index]
        pages, slots = self._numbers[layer.index in self._pool.windowed]
        self._put(k, slots, keys)
        self._put(v, slots, values)
        q = _token_rows(q)
        out = torch.empty(len(q), layer.heads, layer.v_head_dim)
        self.kernels.attend(
            q.data_ptr(),
            q.stride(0),
            keys.data_ptr(),
            values.data_ptr(),
            out.data_ptr(),
            pages.data_ptr(),
            pages.stride(0),
            self._lengths.data_ptr(),
            self._extends.data_ptr(),
            None if layer.sinks is None else layer.sinks.data_ptr(),
            None if self._seen is None else self._seen.data_ptr(),
            len(self._lengths),
            layer.heads,
            layer.kv_heads,
            layer.head_dim,
            layer.v_head_dim,
            self._page_size,
            layer.window or 0,
            layer.scale,
            layer.soft_cap or 0.0,
            int(keys.dtype == torch.bfloat16),
            self.threads,
        )
        return out

    def _put(self, x: Tensor, slots: Tensor, pool: Tensor) -> None:
        """x: [num_tokens, kv_heads, width]"""
        x, width = _token_rows(x), pool.stride(0)
        halves = int(pool.dtype == torch.bfloat16)
        self.kernels.store(
            x.data_ptr(), x.stride(0), slots.data_ptr(), pool.data_ptr(), len(slots), width, halves
        )


def _tensors(batch: ForwardBatch, released: bool) -> tuple[Tensor, Tensor]:
    """`page_numbers`, for the kernels."""
    table, slots = page_numbers(batch, released)
    return torch.from_numpy(np.ascontiguousarray(table)), torch.from_numpy(slots)


def _token_rows(x: Tensor) -> Tensor:
    """`x`, [num_tokens, heads, width], with each token's heads contiguous; rows may have a
    stride."""
    dense = x.stride(2) == 1 and (x.shape[1] == 1 or x.stride(1) == x.shape[2])
    return x if dense else x.contiguous()
