"""Attention over the paged pool with torch's own operators: the CPU's, and everyone's fallback.

Decodes (rows with one new token) run in groups: the keys of a group are gathered into one padded
batch, and the query heads that share a KV head become its query length, so nothing is repeated.
Other rows run one by one, in blocks of queries that see just the keys up to the block's end.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from pando_worker.attention.backend import AttentionLayer
from pando_worker.memory.kv_pool import TokenToKVPool
from pando_worker.runner.batch import ForwardBatch, Int32, Int64

# Measured: one call with a full mask takes as long, but the mask's memory grows with both lengths.
QUERY_BLOCK = 256
# Keys gathered for one group; a row that alone has more runs alone. Bounds memory where many rows
# share a long prefix, and is about what caches hold.
GROUP_BYTES = 16 * 2**20
# Rows up to this length share a group; above, a group holds lengths within a factor of two.
SHORT = 256


@dataclass(frozen=True, slots=True)
class _Decodes:
    """Rows with one new token each, padded to the longest."""

    tokens: Tensor | slice  # [rows], where they are in the batch
    slots: Tensor  # [rows * longest]
    mask: Tensor | None  # [rows, 1, 1, longest], added to the scores; None when nothing is padded


@dataclass(frozen=True, slots=True)
class _Extend:
    """One row with new tokens first..last of the batch, the last ones of its slots."""

    first: int
    last: int
    slots: Tensor  # [seq_len]


class TorchAttention:
    """An `AttentionBackend`. Holds the plan of the current batch and the scratch of all."""

    def __init__(self, pool: TokenToKVPool) -> None:
        self._pool = pool
        keys = pool.k[0]
        self._group_tokens = max(1, GROUP_BYTES // keys[0].nbytes)
        self._out_slots = keys.new_empty(0, dtype=torch.int64)
        self._decodes: list[_Decodes] = []
        self._extends: list[_Extend] = []
        self._causal = keys.new_empty(0, 0)
        self._keys = self._values = keys.new_empty(0, *keys.shape[1:])

    def plan(self, batch: ForwardBatch) -> None:
        is_decode = batch.extend_lens == 1
        ends = np.cumsum(batch.extend_lens, dtype=np.int64)
        self._out_slots = self._tensor(batch.out_slots)
        self._decodes = [
            self._plan_decodes(batch, rows, ends[rows] - 1)
            for rows in _groups(np.flatnonzero(is_decode), batch.seq_lens, self._group_tokens)
        ]
        self._extends = [
            _Extend(
                first=int(ends[row] - batch.extend_lens[row]),
                last=int(ends[row]),
                slots=self._tensor(_slots(batch, np.array([row]))),
            )
            for row in np.flatnonzero(~is_decode).tolist()
        ]
        self._causal = self._plan_causal([len(row.slots) for row in self._extends])
        gathers = [part.slots for part in self._decodes] + [row.slots for row in self._extends]
        self._reserve(max(map(len, gathers)))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer) -> Tensor:
        index = layer.index
        self._pool.store(index, self._out_slots, k, v)
        out = torch.empty_like(q)
        for decodes in self._decodes:
            out[decodes.tokens] = self._decode(q[decodes.tokens], decodes, index)
        for row in self._extends:
            self._extend(q[row.first : row.last], row, index, out[row.first : row.last])
        return out

    def _decode(self, q: Tensor, decodes: _Decodes, layer: int) -> Tensor:
        """q and result: [rows, heads, head_dim]"""
        keys, values = self._gather(decodes.slots, layer)
        rows, (_, kv_heads, head_dim) = len(q), keys.shape
        out = scaled_dot_product_attention(
            q.view(rows, kv_heads, -1, head_dim),
            keys.view(rows, -1, kv_heads, head_dim).transpose(1, 2),
            values.view(rows, -1, kv_heads, head_dim).transpose(1, 2),
            attn_mask=decodes.mask,
        )
        return out.reshape(q.shape)

    def _extend(self, q: Tensor, row: _Extend, layer: int, out: Tensor) -> None:
        """q and out: [new tokens of the row, heads, head_dim]"""
        keys, values = (t.transpose(0, 1)[None] for t in self._gather(row.slots, layer))
        cached = len(row.slots) - len(q)
        origin = self._causal.shape[1] - QUERY_BLOCK
        for start in range(0, len(q), QUERY_BLOCK):
            block = q[start : start + QUERY_BLOCK]
            seen = cached + start + len(block)
            left = origin - (cached + start)
            out[start : start + QUERY_BLOCK] = scaled_dot_product_attention(
                block.transpose(0, 1)[None],
                keys[:, :, :seen],
                values[:, :, :seen],
                attn_mask=self._causal[: len(block), left : left + seen],
                enable_gqa=True,
            )[0].transpose(0, 1)

    def _gather(self, slots: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of `slots`, [slots, kv_heads, head_dim] each, in the scratch."""
        keys, values = self._keys[: len(slots)], self._values[: len(slots)]
        torch.index_select(self._pool.k[layer], 0, slots, out=keys)
        torch.index_select(self._pool.v[layer], 0, slots, out=values)
        return keys, values

    def _plan_decodes(self, batch: ForwardBatch, rows: Int64, tokens: Int64) -> _Decodes:
        lengths = batch.seq_lens[rows]
        padded = np.arange(lengths.max()) >= lengths[:, None]
        mask = None
        if padded.any():
            scores = np.where(padded, -np.inf, 0.0)[:, None, None, :]
            mask = self._tensor(scores).to(self._keys.dtype)
        return _Decodes(
            # Mostly the group is the whole batch: then nothing needs picking out of it.
            tokens=slice(None) if len(rows) == len(batch.input_ids) else self._tensor(tokens),
            slots=self._tensor(_slots(batch, rows)),
            mask=mask,
        )

    def _plan_causal(self, lengths: list[int]) -> Tensor:
        """One mask for all blocks, [QUERY_BLOCK, longest + QUERY_BLOCK], added to the scores.

        Row i is open up to column longest + i: a block whose first query sees `before` keys
        besides its own takes the columns from longest - before on.
        """
        if not lengths:
            return self._causal
        shape = (QUERY_BLOCK, max(lengths) + QUERY_BLOCK)
        return self._keys.new_full(shape, -torch.inf).triu_(max(lengths) + 1)

    def _reserve(self, tokens: int) -> None:
        """Scratch for so many gathered tokens, kept between steps: fresh memory costs faults."""
        if len(self._keys) < tokens:
            self._keys = self._keys.new_empty(tokens, *self._keys.shape[1:])
            self._values = torch.empty_like(self._keys)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._keys.device)


def _slots(batch: ForwardBatch, rows: Int64) -> Int64:
    """KV slots of the rows' tokens, flat [rows * longest of them].

    A shorter row is padded with its own last token: the mask hides it, but a value that is not
    finite would show through the mask (0 x NaN), and another request's might be.
    """
    lengths = batch.seq_lens[rows]
    positions = np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
    pages = np.take_along_axis(batch.page_table[rows], positions // batch.page_size, axis=1)
    slots: Int64 = pages.astype(np.int64) * batch.page_size + positions % batch.page_size
    return slots.reshape(-1)


def _groups(rows: Int64, seq_lens: Int32, group_tokens: int) -> list[Int64]:
    """Split rows by length so that padding at most doubles what is gathered, once not short."""
    octave = np.ceil(np.log2(np.maximum(seq_lens[rows], SHORT)))
    groups = []
    for value in np.unique(octave):
        alike = rows[octave == value]
        size = max(1, group_tokens // int(seq_lens[alike].max()))
        groups += [alike[start : start + size] for start in range(0, len(alike), size)]
    return groups
