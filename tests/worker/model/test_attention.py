"""The torch backend compared with attention written out in float64, for all features of layers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionBackend, AttentionLayer
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.batch import ForwardBatch, ImageTokens
from tests.worker.model.paged import greedy

CPU = torch.device("cpu")
SINKS = torch.tensor([1.5, -2.0, 0.0, 4.0])
LAYERS = {
    "grouped heads": AttentionLayer(
        index=0, heads=4, kv_heads=2, head_dim=16, v_head_dim=16, scale=0.25
    ),
    "a head a head": AttentionLayer(
        index=1, heads=4, kv_heads=4, head_dim=8, v_head_dim=8, scale=0.3
    ),
    "scale": AttentionLayer(index=2, heads=4, kv_heads=1, head_dim=16, v_head_dim=16, scale=0.9),
    "narrow values": AttentionLayer(
        index=3, heads=4, kv_heads=2, head_dim=24, v_head_dim=16, scale=0.2
    ),
    "wide values": AttentionLayer(
        index=4, heads=4, kv_heads=2, head_dim=8, v_head_dim=32, scale=0.2, window=40
    ),
    "window": AttentionLayer(
        index=5, heads=4, kv_heads=2, head_dim=16, v_head_dim=16, scale=0.25, window=7
    ),
    "window of itself": AttentionLayer(
        index=6, heads=4, kv_heads=2, head_dim=16, v_head_dim=16, scale=0.25, window=1
    ),
    "window of several blocks": AttentionLayer(
        index=7, heads=4, kv_heads=2, head_dim=16, v_head_dim=16, scale=0.25, window=300
    ),
    "soft cap": AttentionLayer(
        index=8, heads=4, kv_heads=2, head_dim=16, v_head_dim=16, scale=1.0, soft_cap=2.0
    ),
    "sinks": AttentionLayer(
        index=9, heads=4, kv_heads=2, head_dim=16, v_head_dim=16, scale=0.25, sinks=SINKS
    ),
    "all of it": AttentionLayer(
        index=10,
        heads=4,
        kv_heads=2,
        head_dim=16,
        v_head_dim=8,
        scale=0.8,
        window=7,
        soft_cap=3.0,
        sinks=SINKS,
    ),
    "latent": AttentionLayer(
        index=11, heads=4, kv_heads=1, head_dim=8, v_head_dim=16, scale=0.25, latent=True
    ),
    "odd latent of one head": AttentionLayer(
        index=12, heads=1, kv_heads=1, head_dim=6, v_head_dim=20, scale=0.25, latent=True
    ),
}
# (cached, new) tokens of each row
BATCHES = {
    "decodes": [(0, 1), (1, 1), (6, 1), (7, 1), (700, 1), (300, 1), (40, 1)],
    "decodes of one length": [(9, 1), (9, 1)],
    "prefills": [(0, 5), (0, 300), (0, 2)],
    "chunks after a cached prefix": [(3, 5), (290, 300), (64, 256), (10, 2)],
    "all mixed": [(0, 1), (20, 30), (33, 1), (0, 9), (600, 1), (5, 2)],
}


@dataclass(frozen=True)
class Case:
    batch: ForwardBatch
    slots: list[Tensor]  # per row, of its cached and new tokens


def case(rows: list[tuple[int, int]], page_size: int) -> Case:
    """Rows with pages in random order."""
    random = np.random.default_rng(0)
    lengths = np.array([cached + new for cached, new in rows], dtype=np.int32)
    counts = -(-lengths // page_size)
    pages = random.permutation(int(counts.sum())).astype(np.int32)
    table = random.choice(pages, (len(rows), counts.max()))
    slots, out = [], []
    for index, (cached, new) in enumerate(rows):
        first = int(counts[:index].sum())
        table[index, : counts[index]] = pages[first : first + counts[index]]
        where = np.arange(cached + new)
        own = table[index, where // page_size].astype(np.int64) * page_size + where % page_size
        slots.append(torch.from_numpy(own))
        out.append(own[cached:])
    return Case(
        slots=slots,
        batch=ForwardBatch(
            input_ids=np.zeros(sum(new for _, new in rows), dtype=np.int64),
            positions=np.concatenate([np.arange(c, c + n) for c, n in rows]),
            out_slots=np.concatenate(out),
            extend_lens=np.array([new for _, new in rows], dtype=np.int32),
            seq_lens=lengths,
            page_table=table.astype(np.int32),
            page_size=page_size,
            req_rows=np.arange(len(rows)),
            sample_rows=np.arange(len(rows)),
            sampling=greedy(len(rows)),
        ),
    )


def brute_force(
    q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer, images: Sequence[range] = ()
) -> Tensor:
    """Attention of a row's new (last) queries over all of its keys, in float64.

    Args:
        images: among the queries, those that see each other
    """
    group = layer.heads // layer.kv_heads
    if layer.latent:
        k = torch.cat((v, k), dim=-1)
    k, v = (t.double().repeat_interleave(group, dim=1) for t in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * layer.scale
    if layer.soft_cap is not None:
        scores = layer.soft_cap * torch.tanh(scores / layer.soft_cap)
    query = torch.arange(len(k) - len(q), len(k))[:, None]
    key = torch.arange(len(k))[None, :]
    visible = key <= query
    for image in images:
        start, end = (len(k) - len(q) + at for at in (image.start, image.stop))
        visible |= (key >= start) & (key < end) & (query >= start) & (query < end)
    if layer.window is not None:
        visible &= query - key < layer.window
    weights = scores.masked_fill(~visible, -torch.inf).exp()
    total = weights.sum(-1, keepdim=True)
    if layer.sinks is not None:
        total = total + layer.sinks.double().exp()[:, None, None]
    return torch.einsum("hqk,khd->qhd", weights / total, v)


WINDOWED = frozenset(
    layer.index for layer in LAYERS.values() if layer.window and layer.window <= 40
)


def release_behind_windows(made: Case) -> tuple[ForwardBatch, int]:
    """The batch for a pool in which the layers of `WINDOWED` have only the window pages that they
    see, and the number of slots of these."""
    batch = made.batch
    first = np.maximum(batch.seq_lens - batch.extend_lens + 1 - 40, 0) // batch.page_size
    end = -(-batch.seq_lens // batch.page_size)
    index = np.arange(batch.page_table.shape[1])
    seen = (index >= first[:, None]) & (index < end[:, None])
    table = np.full_like(batch.page_table, -1)
    table[seen] = np.random.default_rng(1).permutation(int(seen.sum()))
    rows = np.repeat(np.arange(len(table)), batch.extend_lens)
    pages = table[rows, batch.positions // batch.page_size].astype(np.int64)
    slots = pages * batch.page_size + batch.positions % batch.page_size
    split = replace(batch, window_table=table, window_slots=slots)
    return split, int(seen.sum()) * batch.page_size


def fill(pool: TokenToKVPool, layer: AttentionLayer, made: Case, k: Tensor, v: Tensor) -> None:
    """Store the cached tokens of all rows, and non-finite values everywhere else.

    Args:
        k, v: for all slots of the page table
    """
    batch, index = made.batch, layer.index
    pool.k[index].fill_(torch.nan)
    pool.v[index].fill_(torch.nan)
    for row, slots in enumerate(made.slots):
        cached = slots[: len(slots) - int(batch.extend_lens[row])]
        to = cached
        if index in pool.windowed:
            assert batch.window_table is not None
            where = np.arange(len(cached))
            pages = batch.window_table[row, where // batch.page_size].astype(np.int64)
            to = torch.from_numpy(pages * batch.page_size + where % batch.page_size)
            cached, to = cached[pages >= 0], to[pages >= 0]
        pool.store(index, to, k[cached], v[cached])


def rows_of(batch: ForwardBatch, tokens: Tensor) -> Iterator[Tensor]:
    yield from torch.split(tokens, batch.extend_lens.tolist())


def assert_equals_brute_force(
    made: Case,
    attention_on: Callable[[TokenToKVPool], AttentionBackend],
    *,
    released: bool,
    dtype: torch.dtype = torch.float32,
    images: Sequence[Sequence[range]] | None = None,
) -> None:
    """All layers share one pool and one plan, as in a model with different layers. Keys and values
    are rounded as in the pool.

    Args:
        released: whether some layers have released the pages behind their windows
        images: of each row, the places of their tokens among the new ones
    """
    window_slots = 0
    if released:
        batch, window_slots = release_behind_windows(made)
        made = replace(made, batch=batch)
    torch.manual_seed(0)
    num_slots = max(int(slots.max()) for slots in made.slots) + 1
    pool = TokenToKVPool(
        list(LAYERS.values()),
        num_slots,
        dtype,
        CPU,
        windowed=WINDOWED if released else frozenset(),
        window_slots=window_slots,
    )
    attention = attention_on(pool)
    attention.plan(made.batch)
    for name, layer in LAYERS.items():
        keys = torch.randn(num_slots, layer.kv_heads, layer.head_dim)
        values = torch.randn(num_slots, layer.kv_heads, layer.v_head_dim)
        fill(pool, layer, made, keys, values)
        new = torch.from_numpy(made.batch.out_slots)
        q, k = torch.randn(len(new), layer.heads, layer.q_dim), keys[new]
        if not layer.latent:  # as in the layers, queries and keys are parts of one tensor
            q, k = torch.cat((q, k), dim=1).tensor_split([layer.heads], dim=1)
        out = attention.forward(q, k, values[new], layer)
        keys, values = keys.to(dtype).float(), values.to(dtype).float()
        expected = [
            brute_force(row, keys[slots], values[slots], layer, own)
            for row, slots, own in zip(
                rows_of(made.batch, q),
                made.slots,
                images or [()] * len(made.slots),
                strict=True,
            )
        ]
        torch.testing.assert_close(
            out.double(),
            torch.cat(expected),
            atol=1e-5,
            rtol=1e-5,
            msg=partial("{}: {}".format, name),
        )


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("rows", BATCHES.values(), ids=BATCHES.keys())
def test_attention_equals_brute_force(
    rows: list[tuple[int, int]], page_size: int, released: bool
) -> None:
    assert_equals_brute_force(case(rows, page_size), TorchAttention, released=released)


WITH_IMAGES = [(0, 40), (5, 300), (600, 1), (33, 90), (0, 9), (2, 600)]
IMAGES = [
    [range(3, 20), range(20, 40)],
    [range(280)],
    [],
    [range(10, 11), range(50, 90)],
    [],
    [range(100, 101), range(250, 520)],
]


def case_with_images(
    page_size: int,
    rows: list[tuple[int, int]] = WITH_IMAGES,
    images: Sequence[Sequence[range]] = IMAGES,
) -> Case:
    """A case in which tokens of an image see its later ones."""
    made = case(rows, page_size)
    seen = (made.batch.positions + 1).astype(np.int32)
    firsts = np.cumsum(made.batch.extend_lens) - made.batch.extend_lens
    for first, within in zip(firsts.tolist(), images, strict=True):
        for image in within:
            some = slice(first + image.start, first + image.stop)
            seen[some] = seen[some].max()
    tokens = ImageTokens(drop=[], encode=[], tokens=np.zeros(0, np.int64), rows=[], seen=seen)
    return replace(made, batch=replace(made.batch, images=tokens))


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("page_size", [1, 16])
def test_tokens_of_an_image_see_each_other(page_size: int, released: bool) -> None:
    made = case_with_images(page_size)
    assert_equals_brute_force(made, TorchAttention, released=released, images=IMAGES)


def test_keys_behind_the_window_are_never_read() -> None:
    """Their pages may belong to other requests and contain non-finite values."""
    layer = LAYERS["window"]
    assert layer.window is not None
    rows = [(40, 1), (40, 3), (100, 1)]
    made = case(rows, page_size=4)
    num_slots = max(int(slots.max()) for slots in made.slots) + 1
    only = AttentionLayer(
        index=0, heads=4, kv_heads=2, head_dim=16, v_head_dim=16, scale=0.25, window=layer.window
    )
    pool = TokenToKVPool([only], num_slots, torch.float32, CPU)
    for slots, (cached, _) in zip(made.slots, rows, strict=True):
        seen = slots[cached + 1 - layer.window : cached]
        for tensor in (pool.k[0], pool.v[0]):
            tensor[slots[:cached]] = torch.nan
            tensor[seen] = 1.0
    attention = TorchAttention(pool)
    attention.plan(made.batch)
    new = len(made.batch.out_slots)
    kv = torch.ones(new, 2, 16)
    assert attention.forward(torch.ones(new, 4, 16), kv, kv, only).isfinite().all()
