"""Attention to sources with torch's operators: each new token sees all positions of its row's."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.attention.scores import attend
from pando_worker.batch import ForwardBatch, Int32, SourceRows
from pando_worker.tensors.transfer import to_device


@dataclass(frozen=True, slots=True)
class _Alike:
    """Rows with equally many new tokens and equally long sources.

    Attributes:
        tokens: [rows * new tokens], their indices in the batch
        slots: [rows * length], of their sources
    """

    tokens: Tensor
    slots: Tensor
    rows: int


class TorchSources:
    """The sources of the planned batch."""

    def __init__(self, pool: TokenToKVPool, group_tokens: int) -> None:
        """
        Args:
            group_tokens: positions that are gathered at once, of one row at least
        """
        self._pool = pool
        self._group_tokens = group_tokens
        self._groups: list[_Alike] = []
        self._slots: Tensor | None = None

    def plan(self, batch: ForwardBatch) -> None:
        sources = batch.sources
        if sources is None:
            self._groups, self._slots = [], None
            return
        device = self._pool.k[0].device
        self._slots = to_device(sources.slots, device)
        firsts = np.cumsum(batch.extend_lens) - batch.extend_lens
        self._groups = []
        for extend, length, rows in _alike(batch.extend_lens, sources.lengths, self._group_tokens):
            tokens = firsts[rows][:, None] + np.arange(extend)
            self._groups.append(
                _Alike(
                    to_device(tokens.reshape(-1), device),
                    to_device(_slots(sources, rows, length, batch.page_size), device),
                    len(rows),
                )
            )

    def keep(self, k: Tensor, v: Tensor, layer: AttentionLayer) -> None:
        assert self._slots is not None
        self._pool.store(layer.index, self._slots, k, v)

    def attend(self, q: Tensor, layer: AttentionLayer) -> Tensor:
        out = q.new_empty(len(q), layer.heads, layer.v_head_dim)
        for group in self._groups:
            count = len(group.slots)
            keys = q.new_empty(count, layer.kv_heads, layer.head_dim)
            values = q.new_empty(count, layer.kv_heads, layer.v_head_dim)
            self._pool.load(layer.index, group.slots, keys, values)
            some = attend(
                _by_row(q[group.tokens], group.rows),
                _by_row(keys, group.rows),
                _by_row(values, group.rows),
                None,
                layer,
            )
            out[group.tokens] = some.transpose(1, 2).flatten(0, 1)
        return out


def _by_row(x: Tensor, rows: int) -> Tensor:
    """[rows * n, heads, width] to [rows, heads, n, width]"""
    return x.view(rows, -1, *x.shape[1:]).transpose(1, 2)


def _alike(extends: Int32, lengths: Int32, most: int) -> list[tuple[int, int, Int32]]:
    """New tokens, length and rows of groups of rows that are alike."""
    both = np.stack((extends, lengths), axis=1)
    found = []
    for extend, length in np.unique(both, axis=0).tolist():
        rows = np.flatnonzero((extends == extend) & (lengths == length)).astype(np.int32)
        size = max(1, most // length)
        found += [
            (extend, length, rows[start : start + size]) for start in range(0, len(rows), size)
        ]
    return found


def _slots(sources: SourceRows, rows: Int32, length: int, page_size: int) -> np.ndarray:
    positions = np.arange(length)
    pages = sources.page_table[rows][:, positions // page_size].astype(np.int64)
    return (pages * page_size + positions % page_size).reshape(-1)
