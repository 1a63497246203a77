"""`CpuAttention`: attention that reads the paged pool directly, without gathering keys."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer, DistanceBias, page_numbers
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.batch import ForwardBatch, Int32, SourceRows
from pando_worker.cpu.kernels import Kernels


class PlannedSources(NamedTuple):
    """What the rows of a batch attend to beside their own tokens.

    Attributes:
        pages: int32 [batch, max_pages]
        lengths: int32 [batch]
        seen: int32 [num_tokens], the length of each token's row; None if each row has one token
        slots: int64, of the positions that the step encodes
    """

    pages: Tensor
    lengths: Tensor
    seen: Tensor | None
    slots: Tensor


class CpuAttention:
    """A `SourceBackend` for float32, over a pool of float32 or bfloat16, in C++.

    Attributes:
        kernels, threads: used to run it
        kinds: for the layers, each occurring value of "releases pages behind its window"
    """

    def __init__(self, kernels: Kernels, pool: TokenToKVPool, threads: int) -> None:
        self.kernels = kernels
        self._pool = pool
        self.threads = threads
        self._seen: Tensor | None = None  # `ForwardBatch.seen` of the planned batch
        self._sources: PlannedSources | None = None
        self.kinds = dict.fromkeys(layer.index in pool.windowed for layer in pool.layers)

    def plan(self, batch: ForwardBatch) -> None:
        numbers = {kind: _tensors(batch, kind) for kind in self.kinds}
        lengths, extends = map(torch.from_numpy, (batch.seq_lens, batch.extend_lens))
        self.plan_on(numbers, lengths, extends, batch.page_size)
        self._seen = None if batch.seen is None else torch.from_numpy(batch.seen)
        if (sources := batch.sources) is not None:
            self._sources = PlannedSources(
                torch.from_numpy(sources.page_table),
                torch.from_numpy(sources.lengths),
                _seen(sources, batch.extend_lens),
                torch.from_numpy(sources.slots),
            )

    def plan_on(
        self,
        numbers: dict[bool, tuple[Tensor, Tensor]],
        lengths: Tensor,
        extends: Tensor,
        page_size: int,
        sources: "PlannedSources | None" = None,
    ) -> None:
        """Like `plan`, from a batch's `seq_lens`, `extend_lens` and `page_numbers` for each of
        `kinds`. Their values may change later."""
        self._sources = sources
        self._numbers, self._lengths, self._extends = numbers, lengths, extends
        self._page_size = page_size
        self._seen = None

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer) -> Tensor:
        keys, values = self._pool.k[layer.index], self._pool.v[layer.index]
        pages, slots = self._numbers[layer.index in self._pool.windowed]
        self._put(k, slots, keys)
        self._put(v, slots, values)
        return self._attend(q, layer, pages, self._lengths, self._seen, layer.bias)

    def keep_sources(self, k: Tensor, v: Tensor, layer: AttentionLayer) -> None:
        assert self._sources is not None
        self._put(k, self._sources.slots, self._pool.k[layer.index])
        self._put(v, self._sources.slots, self._pool.v[layer.index])

    def attend_sources(self, q: Tensor, layer: AttentionLayer) -> Tensor:
        sources = self._sources
        assert sources is not None
        return self._attend(q, layer, sources.pages, sources.lengths, sources.seen, None)

    def _attend(
        self,
        q: Tensor,
        layer: AttentionLayer,
        pages: Tensor,
        lengths: Tensor,
        seen: Tensor | None,
        bias: DistanceBias | None,
    ) -> Tensor:
        """
        Args:
            pages: int32 [batch, max_pages]
            lengths: int32 [batch], keys of each row
            seen: as of `ForwardBatch`
        """
        keys, values = self._pool.k[layer.index], self._pool.v[layer.index]
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
            lengths.data_ptr(),
            self._extends.data_ptr(),
            None if layer.sinks is None else layer.sinks.data_ptr(),
            None if seen is None else seen.data_ptr(),
            None if bias is None else bias.biases.data_ptr(),
            None if bias is None else bias.buckets.data_ptr(),
            0 if bias is None else len(bias.buckets),
            len(lengths),
            layer.heads,
            layer.kv_heads,
            layer.q_dim,
            layer.v_head_dim,
            self._page_size,
            layer.window or 0,
            layer.scale,
            layer.soft_cap or 0.0,
            int(keys.dtype == torch.bfloat16),
            int(layer.latent),
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


def _seen(sources: SourceRows, extends: Int32) -> Tensor | None:
    """As of `PlannedSources`: a new token of several sees as much as the last one."""
    if (extends == 1).all():
        return None
    return torch.from_numpy(np.repeat(sources.lengths, extends))


def _tensors(batch: ForwardBatch, released: bool) -> tuple[Tensor, Tensor]:
    """`page_numbers`, for the kernels."""
    table, slots = page_numbers(batch, released)
    return torch.from_numpy(np.ascontiguousarray(table)), torch.from_numpy(slots)


def _token_rows(x: Tensor) -> Tensor:
    """`x`, [num_tokens, heads, width], with each token's heads contiguous; rows may have a
    stride."""
    dense = x.stride(2) == 1 and (x.shape[1] == 1 or x.stride(1) == x.shape[2])
    return x if dense else x.contiguous()
