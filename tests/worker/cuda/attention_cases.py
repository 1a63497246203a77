"""Kinds of layers, batches and a check against brute force, for the flashinfer backend anywhere.

`tests/gpu` runs them on the real library, this folder on one that goes by its documentation.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionBackend, AttentionLayer
from pando_worker.memory.kv_pool import TokenToKVPool
from pando_worker.runner.batch import ForwardBatch
from tests.worker.model.test_attention import Case, brute_force, rows_of

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
NARROW_VALUES: dict[str, Any] = SHAPE | {"scale": 0.07, "head_dim": 192, "v_head_dim": 128}


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
) -> None:
    """Cached keys are in the pool, the new ones come with the step; all else is not finite."""
    torch.manual_seed(0)
    count, device = len(pool.k[0]), pool.k[0].device
    new = torch.from_numpy(batch.out_slots)
    for layer in pool.layers:
        whole_k = torch.randn(count, layer.kv_heads, layer.head_dim).bfloat16()
        whole_v = torch.randn(count, layer.kv_heads, layer.v_head_dim).bfloat16()
        for part in (pool.k[layer.index], pool.v[layer.index]):
            part.copy_(torch.full(part.shape, torch.nan))
        cached = torch.unique(torch.cat(slots))
        cached = cached[~torch.isin(cached, new)]
        stored = (x[cached].to(device) for x in (whole_k, whole_v))
        pool.store(layer.index, cached.to(device), *stored)
        q = torch.randn(len(new), layer.heads, layer.head_dim).bfloat16()
        new_k, new_v = whole_k[new].to(device), whole_v[new].to(device)
        out = attention.forward(q.to(device), new_k, new_v, layer).cpu()
        rows = zip(rows_of(batch, q), slots, strict=True)
        expected = [
            brute_force(row, whole_k[own], whole_v[own], on_cpu(layer)) for row, own in rows
        ]
        torch.testing.assert_close(out.double(), torch.cat(expected), atol=atol, rtol=atol)


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
) -> TokenToKVPool:
    """With a page more than the rows have."""
    pages = max(int(own.max()) for own in slots) // page_size + 1
    return TokenToKVPool(layers, (pages + 1) * page_size, dtype, device)
