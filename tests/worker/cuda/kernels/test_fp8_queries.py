"""Queries in fp8: the Triton kernels in the interpreter against torch, and attention with them."""

from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pando_worker.attention.backend import KVScales
from pando_worker.attention.flashinfer import backend as flashinfer_backend
from pando_worker.attention.flashinfer.backend import FlashinferAttention
from pando_worker.attention.flashinfer.calls import KernelCall
from pando_worker.attention.flashinfer.fp8_queries import quantized_queries
from pando_worker.attention.flashinfer.library import Library
from pando_worker.cuda.fp8_quantize import quantize_queries
from tests.examples import examples
from tests.worker.cuda.flashinfer.attention_cases import (
    KINDS,
    SHAPE,
    assert_brute_force,
    layers_of,
    pool_for,
    share,
)
from tests.worker.cuda.flashinfer.by_the_book import ByTheBook
from tests.worker.cuda.kernels.poisoned import Poisoned
from tests.worker.model.test_attention import case

LIBRARY = cast(Library, ByTheBook())
E4M3 = torch.float8_e4m3fn
WIDE: list[dict[str, Any]] = [
    SHAPE | {"scale": 0.09, "head_dim": dim, "v_head_dim": dim} for dim in (128, 256)
]


@pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the kernels")
@settings(max_examples=examples(30), deadline=None)
@given(
    tokens=st.integers(1, 40),
    heads=st.integers(1, 3),
    dim=st.sampled_from([8, 64, 96, 256]),
    dtype=st.sampled_from([torch.bfloat16, torch.float16]),
    spread=st.sampled_from([0.0, 1e-3, 1.0, 1000.0]),
    bad=st.sampled_from([None, torch.nan, torch.inf, -torch.inf]),
    seed=st.integers(0, 99),
)
def test_queries_become_what_torch_makes_of_them(
    tokens: int,
    heads: int,
    dim: int,
    dtype: torch.dtype,
    spread: float,
    bad: float | None,
    seed: int,
) -> None:
    """With keys and values beside them and memory around, which must not be read."""
    torch.manual_seed(seed)
    whole = Poisoned(torch.full((tokens, (heads + 2) * dim), torch.nan, dtype=dtype))
    q = torch.unflatten(whole.tensor, 1, (-1, dim))[:, :heads]
    q.copy_(torch.randn(tokens, heads, dim) * spread)
    if bad is not None:
        q[tokens // 2, heads - 1, dim // 2] = bad
    (values, scales), expected = quantize_queries(q), quantized_queries(q)
    assert values.dtype == E4M3 and values.is_contiguous() and torch.equal(scales, expected[1])
    same = values.view(torch.uint8) == expected[0].view(torch.uint8)
    assert (same | (values.isnan() & q.isnan())).all()
    whole.check()


def test_a_token_that_is_not_finite_leaves_the_others_as_they_are() -> None:
    torch.manual_seed(0)
    q = torch.randn(5, 2, 64).bfloat16()
    alone = quantized_queries(q[1:])
    q[0, 0, 3], q[0, 1, 4] = torch.inf, torch.nan
    values, scales = quantized_queries(q)
    assert torch.equal(scales, alone[1])
    assert torch.equal(values[1:].float(), alone[0].float())


@pytest.mark.parametrize("scales", [KVScales(), KVScales(2.0**-7, 2.0**-5)])
@pytest.mark.parametrize("kinds", [KINDS, WIDE], ids=["kinds", "wide"])
def test_flash_attention_3_gets_queries_in_fp8_where_it_reads_keys_in_fp8(
    kinds: list[dict[str, Any]], scales: KVScales, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In extends and shared prefixes of layers that its kernel computes; decodes keep theirs."""
    monkeypatch.setattr(flashinfer_backend, "CASCADE_BYTES", 1)
    made = case([(100, 1), (100, 30), (100, 20)], 16)
    share(made, 0, (1, 2), pages=5)
    pool = pool_for(layers_of(kinds), made.slots, 16, E4M3)
    pool.scales = [scales] * len(kinds)
    quantized: list[int] = []

    def quantizer(q: Tensor) -> tuple[Tensor, Tensor]:
        quantized.append(len(q))
        return quantized_queries(q)

    attention = FlashinferAttention(pool, 16, torch.bfloat16, 4096, LIBRARY, quantizer=quantizer)
    for calls in attention._calls.values():
        calls.is_for_fa3 = lambda new, keys: True
    attention.plan(made.batch)
    quantized.clear()
    assert_brute_force(attention, pool, made.batch, made.slots, atol=0.25)
    able = 0
    for kind, plan in attention._plans.items():
        decodes, extends = (cast(KernelCall, call) for call, _ in plan.calls)
        can = kind.window is None and kind.soft_cap is None and not kind.sinks
        assert (decodes._backend, extends._backend) == ("fa2", "auto" if can else "fa2")
        able += can
    assert quantized == [50, 51] * able  # a call's own tokens, then those that share a prefix
