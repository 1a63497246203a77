"""The Triton kernel between projections and attention: in the interpreter against float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.attention.backend import AttentionLayer, HeadTurn, KVScales, LayerKV
from pando_worker.cuda.turn_heads import turn_heads
from tests.examples import examples
from tests.worker.cuda.kernels.poisoned import Poisoned
from tests.worker.cuda.kernels.turning import turned

SLOTS = 30
TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float8_e4m3fn: 0.08}
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the kernel")


@settings(max_examples=examples(40), deadline=None)
@given(
    heads=st.sampled_from([(1, 1), (3, 1), (4, 2)]),
    dims=st.sampled_from([(8, 8), (64, 64), (96, 64), (128, 128)]),
    slots=st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=5, unique=True),
    dtype=st.sampled_from([torch.bfloat16, torch.float16]),
    narrow=st.booleans(),
    scales=st.sampled_from([(1.0, 1.0), (0.37, 9.1), (2.0**-6, 4.0)]),
    wide_slots=st.booleans(),
    norms=st.sampled_from([None, "plain", "offset"]),
    padding=st.sampled_from([0, 8]),
    seed=st.integers(0, 99),
)
def test_queries_keys_and_values_are_those_of_float64(
    heads: tuple[int, int],
    dims: tuple[int, int],
    slots: list[int],
    dtype: torch.dtype,
    narrow: bool,
    scales: tuple[float, float],
    wide_slots: bool,
    norms: str | None,
    padding: int,
    seed: int,
) -> None:
    """And no other slot changes; with memory around all arrays that must not be used."""
    torch.manual_seed(seed)
    (q_heads, kv_heads), (dim, rotary), tokens = heads, dims, len(slots)
    layer = AttentionLayer(
        index=0, heads=q_heads, kv_heads=kv_heads, head_dim=dim, v_head_dim=dim, scale=1.0
    )
    width = (q_heads + 2 * kv_heads) * dim
    whole = Poisoned(torch.full((tokens, width + padding), torch.nan, dtype=dtype))
    whole.tensor[:, :width].copy_(torch.randn(tokens, width))
    qkv = torch.unflatten(whole.tensor[:, :width], 1, (-1, dim))
    angles = torch.rand(tokens, rotary // 2) * 6
    table = Poisoned(torch.cat((angles.cos(), angles.sin()), dim=1) * 0.9)
    weights = None
    if norms is not None:
        weights = [Poisoned(torch.rand(dim).to(dtype)) for _ in range(2)]
    turn = HeadTurn(
        table.tensor,
        None if weights is None else weights[0].tensor,
        None if weights is None else weights[1].tensor,
        1e-5,
        offset=norms == "offset",
    )
    at = Poisoned(torch.tensor(slots, dtype=torch.int64 if wide_slots else torch.int32))
    kept = torch.float8_e4m3fn if narrow else dtype
    octets = torch.zeros(SLOTS, kv_heads, dim * kept.itemsize, dtype=torch.uint8)
    parts = [Poisoned(octets) for _ in range(2)]
    held = parts[0].tensor.view(kept), parts[1].tensor.view(kept)
    pool = LayerKV(*held, KVScales(*scales) if narrow else KVScales())
    q = turn_heads(qkv, turn, layer, pool, at.tensor)
    expected = turned(qkv, turn, layer)
    assert q.dtype == dtype
    torch.testing.assert_close(q.double(), expected[0], atol=1e-2, rtol=TOLERANCE[dtype])
    others = [slot for slot in range(SLOTS) if slot not in slots]
    for part, scale, new in zip(held, pool.scales, expected[1:], strict=True):
        got = part.float().double() * scale
        torch.testing.assert_close(got[slots], new, atol=1e-2, rtol=TOLERANCE[kept])
        assert not got[others].any()
    for each in (whole, table, at, *parts, *(weights or [])):
        each.check()
