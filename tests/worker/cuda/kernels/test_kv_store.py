"""The Triton kernel that stores keys and values: in the interpreter against torch."""

from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer, KVScales, LayerKV
from pando_worker.attention.flashinfer.backend import FlashinferAttention
from pando_worker.attention.flashinfer.library import Library
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.cuda.kv_store import store_kv
from tests.examples import examples
from tests.worker.cuda.flashinfer.attention_cases import (
    KINDS,
    NARROW_VALUES,
    assert_brute_force,
    layers_of,
    pool_for,
)
from tests.worker.cuda.flashinfer.by_the_book import ByTheBook
from tests.worker.cuda.kernels.poisoned import Poisoned
from tests.worker.model.test_attention import case

CPU = torch.device("cpu")
SLOTS = 40
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the kernel")


@settings(max_examples=examples(40), deadline=None)
@given(
    heads=st.integers(1, 3),
    dims=st.sampled_from([(8, 8), (64, 64), (192, 128), (520, 8)]),
    slots=st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=6, unique=True),
    dtype=st.sampled_from([torch.bfloat16, torch.float16]),
    narrow=st.booleans(),
    scales=st.sampled_from([(1.0, 1.0), (0.37, 9.1), (2.0**-6, 4.0)]),
    wide_slots=st.booleans(),
    seed=st.integers(0, 99),
)
def test_slots_hold_what_torch_puts_there(
    heads: int,
    dims: tuple[int, int],
    slots: list[int],
    dtype: torch.dtype,
    narrow: bool,
    scales: tuple[float, float],
    wide_slots: bool,
    seed: int,
) -> None:
    """And no other slot changes; with memory around all arrays that must not be used."""
    torch.manual_seed(seed)
    layer = AttentionLayer(
        index=0, heads=heads, kv_heads=heads, head_dim=dims[0], v_head_dim=dims[1], scale=1.0
    )
    kept = torch.float8_e4m3fn if narrow else dtype
    pool = TokenToKVPool([layer], SLOTS, kept, CPU)
    pool.clear()
    if narrow:
        pool.scales = [KVScales(*scales)]
    # Queries, keys and values lie side by side, as a projection makes them.
    whole = Poisoned(torch.randn(len(slots), heads * (sum(dims) + 4)).mul_(200).to(dtype))
    widths = [heads * 4, heads * dims[0], heads * dims[1]]
    parts = torch.split(whole.tensor, widths, dim=1)
    _, k, v = (torch.unflatten(part, 1, (heads, -1)) for part in parts)
    at = Poisoned(torch.tensor(slots, dtype=torch.int64 if wide_slots else torch.int32))
    got = [Poisoned(part[0].view(torch.uint8)) for part in (pool.k, pool.v)]
    targets = got[0].tensor.view(kept), got[1].tensor.view(kept)
    store_kv(k, v, LayerKV(*targets, pool.scales[0]), at.tensor)
    pool.store(0, at.tensor.long(), k, v)
    for mine, wanted in zip(got, (pool.k[0], pool.v[0]), strict=True):
        assert torch.equal(mine.tensor, wanted.view(torch.uint8))
        mine.check()
    for each in (whole, at):
        each.check()


def test_every_number_of_half_precision_becomes_the_nearest_of_eight_bits() -> None:
    octets = torch.arange(2**16, dtype=torch.int32).to(torch.uint16)
    for dtype in (torch.bfloat16, torch.float16):
        numbers = octets.view(dtype).view(64, 1, -1)
        pool = [torch.zeros(64, 1, 1024, dtype=torch.float8_e4m3fn) for _ in range(2)]
        store_kv(numbers, numbers, LayerKV(pool[0], pool[1]), torch.arange(64))
        wanted = numbers.float().clamp(-448, 448).to(torch.float8_e4m3fn)
        for part in pool:
            assert torch.equal(part.isnan(), numbers.isnan())
            same = part.view(torch.uint8) == wanted.view(torch.uint8)
            assert (same | numbers.isnan()).all()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16], ids=["fp8", "bf16"])
def test_attention_reads_what_the_kernel_stored(dtype: torch.dtype) -> None:
    """Of fp8, and of values that are narrower than keys, for which flashinfer stores nothing."""
    made = case([(40, 1), (20, 30)], 16)
    kinds = KINDS[:1] if dtype.itemsize == 1 else [NARROW_VALUES]
    pool = pool_for(layers_of(kinds), made.slots, 16, dtype)
    stored: list[int] = []

    def storer(k: Tensor, v: Tensor, own: LayerKV, slots: Tensor) -> None:
        stored.append(len(slots))
        store_kv(k.contiguous(), v.contiguous(), own, slots)

    library = cast(Library, ByTheBook())
    attention = FlashinferAttention(pool, 16, torch.bfloat16, 4096, library, storer=storer)
    attention.plan(made.batch)
    assert_brute_force(attention, pool, made.batch, made.slots, atol=0.15)
    assert stored
