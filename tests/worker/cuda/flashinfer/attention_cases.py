"""Kinds of layers, batches and a comparison with brute force, for the flashinfer backend.

`tests/gpu` runs them on the real library, this folder on one written from its documentation.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionBackend, AttentionLayer
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.batch import ForwardBatch
from pando_worker.memory.page_allocator import Pages
from tests.worker.model.test_attention import IMAGES, WITH_IMAGES, Case, brute_force, rows_of

CPU = torch.device("cpu")
SINKS = torch.tensor([1.5, -2.0, 0.0, 4.0], dtype=torch.bfloat16)
SHAPE: dict[str, Any] = {"heads": 4, "kv_heads": 2, "head_dim": 64, "v_head_dim": 64}
KINDS: list[dict[str, Any]] = [
    SHAPE | {"scale": 0.125},
    SHAPE | {"scale": 0.3, "kv_heads": 1},
    SHAPE | {"scale": 0.125, "window": 7},
    SHAPE | {"scale": 0.125, "window": 1},
    SHAPE | {"scale": 0.125, "window": 300},
    SHAPE | {"scale": 0.5, "soft_cap": 2.0},
    SHAPE | {"scale": 0.125, "sinks": SINKS},
    SHAPE | {"scale": 0.125, "sinks": SINKS, "window": 7},
]
DECODES = [(0, 1), (1, 1), (6, 1), (7, 1), (320, 1), (40, 1)]
BATCHES = [
    DECODES,
    [(0, 5), (0, 40), (0, 2)],  # prefills
    [(0, 1), (33, 1), (20, 30), (33, 1), (310, 9), (5, 2)],  # all mixed
]
# Rows and their images; in the second one decodes come first, as in the engine's batches.
IMAGE_BATCHES: list[tuple[list[tuple[int, int]], list[list[range]]]] = [
    (WITH_IMAGES, IMAGES),
    (
        [(40, 1), (7, 1), (0, 40), (20, 33), (5, 9)],
        [[], [], [range(40)], [range(2), range(3, 12), range(12, 33)], []],
    ),
    ([(0, 16), (16, 16)], [[range(16)], [range(16)]]),
    ([(3, 1), (9, 7)], [[], []]),
]
NARROW_VALUES: dict[str, Any] = SHAPE | {"scale": 0.07, "head_dim": 192, "v_head_dim": 128}

LATENT: dict[str, Any] = SHAPE | {
    "scale": 0.07,
    "kv_heads": 1,
    "v_head_dim": 128,
    "latent": True,
}


def layers_of(kinds: list[dict[str, Any]], device: torch.device = CPU) -> list[AttentionLayer]:
    def on_device(kind: dict[str, Any]) -> dict[str, Any]:
        return kind | {"sinks": kind["sinks"].to(device)} if "sinks" in kind else kind

    return [AttentionLayer(index=index, **on_device(kind)) for index, kind in enumerate(kinds)]


def assert_brute_force(
    attention: AttentionBackend,
    pool: TokenToKVPool,
    batch: ForwardBatch,
    slots: list[Tensor],
    atol: float = 1e-2,
    window_slots: list[Tensor] | None = None,
    images: Sequence[Sequence[range]] | None = None,
) -> None:
    """Cached keys are in the pool and new ones in the step; everything else is not finite.

    Args:
        window_slots: like `slots`, for layers that release pages; -1 for released ones
        images: of each row's new tokens, those that see each other
    """
    torch.manual_seed(0)
    count, device = len(pool.k[0]), pool.k[0].device
    new = torch.from_numpy(batch.out_slots)
    for layer in pool.layers:
        whole_k = torch.randn(count, layer.kv_heads, layer.head_dim).bfloat16()
        whole_v = torch.randn(count, layer.kv_heads, layer.v_head_dim).bfloat16()
        for part in (pool.k[layer.index], pool.v[layer.index]):
            part.copy_(torch.full(part.shape, torch.nan))
        cached = at = torch.cat(slots)
        if layer.index in pool.windowed:
            assert window_slots
            at = torch.cat(window_slots)
        known = ~torch.isin(cached, new) & (at >= 0)
        stored = (x[cached[known]].to(device) for x in (whole_k, whole_v))
        pool.store(layer.index, at[known].to(device), *stored)
        q = torch.randn(len(new), layer.heads, layer.q_dim).bfloat16()
        new_k, new_v = whole_k[new].to(device), whole_v[new].to(device)
        out = attention.forward(q.to(device), new_k, new_v, layer).cpu()
        rows = zip(rows_of(batch, q), slots, images or [()] * len(slots), strict=True)
        expected = [
            brute_force(row, whole_k[own], whole_v[own], on_cpu(layer), together)
            for row, own, together in rows
        ]
        torch.testing.assert_close(out.double(), torch.cat(expected), atol=atol, rtol=atol)


def with_windows(batch: ForwardBatch, window: int, window_of: Pages) -> ForwardBatch:
    """The batch for a pool whose layers with windows up to `window` release pages behind them.

    Args:
        window_of: [num_pages], the window page of each page
    """
    size, cached = batch.page_size, batch.seq_lens - batch.extend_lens
    numbers = np.arange(batch.page_table.shape[1])[None]
    is_seen = numbers >= (np.maximum(cached + 1 - window, 0) // size)[:, None]
    is_seen &= numbers < (-(-batch.seq_lens // size))[:, None]
    pages, offsets = batch.out_slots // size, batch.out_slots % size
    return replace(
        batch,
        window_table=np.where(is_seen, window_of[batch.page_table], -1).astype(np.int32),
        window_slots=window_of[pages].astype(np.int64) * size + offsets,
    )


def window_slots_of(batch: ForwardBatch) -> list[Tensor]:
    """The window slots of each row's tokens, in order; -1 for released ones."""
    assert batch.window_table is not None
    found = []
    for table, length in zip(batch.window_table, batch.seq_lens.tolist(), strict=True):
        at = np.arange(length)
        pages = table[at // batch.page_size].astype(np.int64)
        slots = np.where(pages < 0, -1, pages * batch.page_size + at % batch.page_size)
        found.append(torch.from_numpy(slots))
    return found


def on_cpu(layer: AttentionLayer) -> AttentionLayer:
    return layer if layer.sinks is None else replace(layer, sinks=layer.sinks.cpu())


def share(made: Case, first: int, others: tuple[int, ...], pages: int) -> None:
    """Let rows begin with the first pages of another one."""
    for row in others:
        made.batch.page_table[row, :pages] = made.batch.page_table[first, :pages]
        tokens = pages * made.batch.page_size
        made.slots[row][:tokens] = made.slots[first][:tokens]


def pool_for(
    layers: list[AttentionLayer],
    slots: list[Tensor],
    page_size: int,
    dtype: torch.dtype,
    device: torch.device = CPU,
    window: int = 0,
) -> TokenToKVPool:
    """A pool with one page more than the rows have.

    Args:
        window: layers with windows up to this release pages behind them
    """
    pages = max(int(own.max()) for own in slots) // page_size + 1
    windowed = frozenset(layer.index for layer in layers if layer.window and layer.window <= window)
    return TokenToKVPool(
        layers,
        pages * page_size,
        dtype,
        device,
        windowed=windowed,
        window_slots=pages * page_size if windowed else 0,
        spare_slots=page_size,
    )
