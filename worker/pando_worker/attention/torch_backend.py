"""Attention over the paged pool with torch's operators: on the CPU, and the fallback elsewhere.

Decodes (rows with one new token) run in groups: the keys of a group are gathered into one padded
batch, and the query heads that share a KV head become its query length, so nothing is repeated.
Other rows run one by one, in blocks of queries, each with only the keys that the block needs.
Layers with a sliding window gather no keys from before it, whose pages may be released.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer, DistanceBias, page_numbers
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.attention.scores import attend
from pando_worker.attention.torch_sources import TorchSources
from pando_worker.batch import ForwardBatch, Int32, Int64

# Measured: one call with a full mask is as fast, but the mask's memory grows with both lengths.
QUERY_BLOCK = 256
# Keys gathered for one group; a row with more runs alone. Bounds the memory if many rows share a
# long prefix, and is about the size of a processor's cache.
GROUP_BYTES = 16 * 2**20
# Rows up to this length share a group; above it, lengths in a group differ by at most a factor of
# 2.
SHORT = 256


class _Kind(NamedTuple):
    """Layers that share a plan."""

    window: int | None
    released: bool  # whether they use window pages
    bias: DistanceBias | None


@dataclass(frozen=True, slots=True)
class _Decodes:
    """Rows with one new token each, padded to the longest."""

    tokens: Tensor | slice  # [rows], their indices in the batch
    slots: Tensor  # [rows * longest], of the keys that they see
    # [rows, heads or 1, 1, longest], added to the scores; None when nothing is padded or biased
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class _BlockKeys:
    """The keys for a block of queries, as indices into a row's slots."""

    first: int
    last: int
    mask: Tensor  # [queries, last - first], or [heads, ...], added to the scores


@dataclass(frozen=True, slots=True)
class _Extend:
    """One row with the batch's new tokens first..last, which have the last of its slots."""

    first: int
    last: int
    slots: Tensor  # [keys that any of the tokens sees]
    blocks: list[_BlockKeys] | None  # None: causal, with the mask of all rows


@dataclass(frozen=True, slots=True)
class _WindowPlan:
    """A batch's plan for the layers with one window."""

    decodes: list[_Decodes]
    extends: list[_Extend]
    mask: Tensor  # see `_band`


class TorchAttention:
    """A `SourceBackend`. Holds the current batch's plans, and scratch memory for all
    batches."""

    def __init__(self, pool: TokenToKVPool, dtype: torch.dtype | None = None) -> None:
        """
        Args:
            dtype: of queries, new keys and values, and results; the pool's own by default.
        """
        self._pool = pool
        self._widths = (
            max(layer.kv_heads * layer.q_dim for layer in pool.layers),
            max(layer.kv_heads * layer.v_head_dim for layer in pool.layers),
        )
        self._empty = pool.k[0].new_empty(0, dtype=dtype)
        self._group_tokens = max(1, GROUP_BYTES // (self._widths[0] * self._empty.itemsize))
        self._keys = self._values = self._empty  # scratch
        self._kinds = [
            _Kind(layer.window, layer.index in pool.windowed, layer.bias) for layer in pool.layers
        ]
        self._out_slots: dict[bool, Tensor] = {}  # by _Kind.released
        self._plans: dict[_Kind, _WindowPlan] = {}
        self._sources = TorchSources(pool, self._group_tokens)

    def plan(self, batch: ForwardBatch) -> None:
        numbers = {released: page_numbers(batch, released) for _, released, _ in self._kinds}
        self._out_slots = {kind: self._tensor(slots) for kind, (_, slots) in numbers.items()}
        self._plans = {
            kind: self._plan_window(batch, numbers[kind.released][0], kind)
            for kind in dict.fromkeys(self._kinds)
        }
        self._sources.plan(batch)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer) -> Tensor:
        kind = self._kinds[layer.index]
        self._pool.arrive(layer.index)
        self._pool.store(layer.index, self._out_slots[kind.released], k, v)
        plan = self._plans[kind]
        out = q.new_empty(len(q), layer.heads, layer.v_head_dim)
        for decodes in plan.decodes:
            out[decodes.tokens] = self._decode(q[decodes.tokens], decodes, layer)
        for row in plan.extends:
            rows = slice(row.first, row.last)
            self._extend(q[rows], row, plan.mask, layer, out[rows])
        return out

    def keep_sources(self, k: Tensor, v: Tensor, layer: AttentionLayer) -> None:
        self._sources.keep(k, v, layer)

    def attend_sources(self, q: Tensor, layer: AttentionLayer) -> Tensor:
        return self._sources.attend(q, layer)

    def _decode(self, q: Tensor, decodes: _Decodes, layer: AttentionLayer) -> Tensor:
        """[rows, heads, q_dim] to [rows, heads, v_head_dim]"""
        rows = len(q)
        keys, values = self._gather(decodes.slots, layer)
        keys = keys.view(rows, -1, *keys.shape[1:]).transpose(1, 2)
        values = values.view(rows, -1, *values.shape[1:]).transpose(1, 2)
        return attend(q[:, :, None], keys, values, decodes.mask, layer)[:, :, 0]

    def _extend(
        self, q: Tensor, row: _Extend, mask: Tensor, layer: AttentionLayer, out: Tensor
    ) -> None:
        """q: [new tokens of the row, heads, q_dim]; out: [..., v_head_dim]"""
        keys, values = (t.transpose(0, 1)[None] for t in self._gather(row.slots, layer))
        for start in range(0, len(q), QUERY_BLOCK):
            block = q[start : start + QUERY_BLOCK]
            if row.blocks is None:
                part = _causal_keys(len(row.slots) - len(q) + start, len(block), mask, layer)
            else:
                part = row.blocks[start // QUERY_BLOCK]
            out[start : start + QUERY_BLOCK] = attend(
                block.transpose(0, 1)[None],
                keys[:, :, part.first : part.last],
                values[:, :, part.first : part.last],
                part.mask,
                layer,
            )[0].transpose(0, 1)

    def _gather(self, slots: Tensor, layer: AttentionLayer) -> tuple[Tensor, Tensor]:
        """Keys and values of `slots`, [slots, kv_heads, q_dim or v_head_dim], in the scratch."""
        index, heads, count = layer.index, layer.kv_heads, len(slots)
        k_width, v_width = heads * layer.q_dim, heads * layer.v_head_dim
        keys = self._keys[: count * k_width].view(count, heads, layer.q_dim)
        if layer.latent:
            values = keys[..., : layer.v_head_dim]
            self._pool.load(index, slots, keys[..., layer.v_head_dim :], values)
            return keys, values
        values = self._values[: count * v_width].view(count, heads, layer.v_head_dim)
        self._pool.load(index, slots, keys, values)
        return keys, values

    def _plan_window(self, batch: ForwardBatch, table: Int32, kind: _Kind) -> _WindowPlan:
        # A row's first new token sees the earliest keys.
        seen, window = batch.seq_lens, kind.window
        if window is not None:
            seen = np.minimum(seen, batch.extend_lens + window - 1)
        is_decode = batch.extend_lens == 1
        ends = np.cumsum(batch.extend_lens, dtype=np.int64)
        decodes = [
            self._plan_decodes(batch, table, rows, seen[rows], ends[rows] - 1, kind.bias)
            for rows in _groups(np.flatnonzero(is_decode), seen, self._group_tokens)
        ]
        extends = []
        for row in np.flatnonzero(~is_decode).tolist():
            first, last = int(ends[row] - batch.extend_lens[row]), int(ends[row])
            slots = self._tensor(_slots(batch, table, np.array([row]), seen[[row]]))
            ahead = None
            if batch.seen is not None:
                assert kind.bias is None, "no model that sees has biases by distance"
                hidden = int(batch.seq_lens[row] - seen[row])  # leading keys that are not gathered
                ahead = self._blocks(batch.seen[first:last] - hidden, len(slots), window)
            extends.append(_Extend(first, last, slots, ahead))
        longest = max((len(row.slots) for row in extends), default=0)
        self._reserve(max([longest, *(len(group.slots) for group in decodes)]))
        return _WindowPlan(
            decodes, extends, self._band(longest, window, kind.bias) if extends else self._empty
        )

    def _plan_decodes(
        self,
        batch: ForwardBatch,
        table: Int32,
        rows: Int64,
        seen: Int32,
        tokens: Int64,
        bias: DistanceBias | None,
    ) -> _Decodes:
        distances = seen[:, None] - 1 - np.arange(seen.max())
        padded = distances < 0
        mask = None
        if padded.any():
            scores = np.where(padded, -np.inf, 0.0)[:, None, None, :]
            mask = self._tensor(scores).to(self._empty.dtype)
        if bias is not None:
            added = bias.at(self._tensor(distances)).transpose(0, 1)[:, :, None]
            mask = added if mask is None else mask + added
        return _Decodes(
            # Usually the group is the whole batch, and a slice avoids a copy.
            tokens=slice(None) if len(rows) == len(batch.input_ids) else self._tensor(tokens),
            slots=self._tensor(_slots(batch, table, rows, seen)),
            mask=mask,
        )

    def _blocks(self, seen: Int32, keys: int, window: int | None) -> list[_BlockKeys] | None:
        """The keys of one row's queries, of which each sees as many of `keys` as `seen` says, less
        those behind its window; None if that is causal attention."""
        positions = np.arange(keys - len(seen), keys)
        if np.array_equal(seen, positions + 1):
            return None
        firsts = np.maximum(0, positions + 1 - (keys if window is None else window))
        blocks = []
        for start in range(0, len(seen), QUERY_BLOCK):
            some = slice(start, start + QUERY_BLOCK)
            first, last = int(firsts[some].min()), int(seen[some].max())
            columns = np.arange(first, last)
            hidden = (columns < firsts[some, None]) | (columns >= seen[some, None])
            mask = self._tensor(np.where(hidden, -np.inf, 0.0)).to(self._empty.dtype)
            blocks.append(_BlockKeys(first, last, mask))
        return blocks

    def _band(self, longest: int, window: int | None, bias: DistanceBias | None) -> Tensor:
        """One mask for all blocks, [QUERY_BLOCK, longest + QUERY_BLOCK], added to the scores; with
        a bias [heads, ...].

        Row i allows the `window` columns up to column longest + i. A block whose first query has
        `before` keys ahead of its own uses the columns from longest - before on.
        """
        closed = self._empty.new_full((QUERY_BLOCK, longest + QUERY_BLOCK), -torch.inf)
        band = closed.triu(longest + 1)
        if window is not None:
            band.add_(closed.tril_(longest - window))
        if bias is None:
            return band
        rows, columns = (torch.arange(size, device=band.device) for size in band.shape)
        return band + bias.at(longest + rows[:, None] - columns)

    def _reserve(self, tokens: int) -> None:
        """Scratch for this many gathered tokens; kept, as new memory would cause page faults."""
        k_width, v_width = self._widths
        if len(self._keys) < tokens * k_width:
            self._keys = self._empty.new_empty(tokens * k_width)
        if len(self._values) < tokens * v_width:
            self._values = self._empty.new_empty(tokens * v_width)

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self._empty.device)


def _causal_keys(before: int, queries: int, mask: Tensor, layer: AttentionLayer) -> _BlockKeys:
    """For queries that follow `before` keys; `mask` is of `_band`."""
    first = 0 if layer.window is None else max(0, before + 1 - layer.window)
    last = before + queries
    left = mask.shape[-1] - QUERY_BLOCK - before
    return _BlockKeys(first, last, mask[..., :queries, left + first : left + last])


def _slots(batch: ForwardBatch, table: Int32, rows: Int64, seen: Int32) -> Int64:
    """KV slots of the last `seen` tokens of each row, flat [rows * most seen].

    A row that sees fewer is padded with its own last token. The mask hides padding, but a value
    that is not finite would show through (0 x NaN), and another request's value might be one.
    """
    lengths = batch.seq_lens[rows]
    positions = (lengths - seen)[:, None] + np.arange(seen.max())
    positions = np.minimum(positions, lengths[:, None] - 1)
    pages = np.take_along_axis(table[rows], positions // batch.page_size, axis=1)
    slots: Int64 = pages.astype(np.int64) * batch.page_size + positions % batch.page_size
    return slots.reshape(-1)


def _groups(rows: Int64, seen: Int32, group_tokens: int) -> list[Int64]:
    """Group rows by number of keys, so that padding at most doubles the keys of long rows."""
    octave = np.ceil(np.log2(np.maximum(seen[rows], SHORT)))
    groups = []
    for value in np.unique(octave):
        alike = rows[octave == value]
        size = max(1, group_tokens // int(seen[alike].max()))
        groups += [alike[start : start + size] for start in range(0, len(alike), size)]
    return groups
