"""The Triton kernels for mixtures of experts: in the interpreter against float64."""

import math
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from pando_worker.cuda.fused_experts import fused_experts
from pando_worker.cuda.mxfp4_tile import mxfp4_tile
from pando_worker.models.fp8 import BLOCK, Fp8Matrix
from pando_worker.models.mixture import SWIGLU, ExpertGate, ExpertWeights, Routes, sort_by_expert
from tests.examples import examples
from tests.worker.cuda.kernels.poisoned import Poisoned

DTYPES = {torch.bfloat16: 2e-2, torch.float16: 3e-3}
GPT_OSS = ExpertGate(1.702, 1.0, 7.0, interleaved=True)

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu runs the kernels")


def expected(
    x: Tensor,
    weights: Tensor,
    ids: Tensor,
    own: range,
    experts: ExpertWeights,
    gate: ExpertGate,
) -> Tensor:
    """Token by token, in float64; of a rank's `own` experts."""

    def projected(vector: Tensor, matrix: Tensor, bias: Tensor | None, expert: int) -> Tensor:
        out = matrix[expert].double() @ vector
        return out if bias is None else out + bias[expert].double()

    out = torch.zeros(x.shape, dtype=torch.float64)
    for token, chosen in enumerate(ids.tolist()):
        for place, expert in enumerate(number - own.start for number in chosen):
            if not 0 <= expert < len(own):
                continue
            both = projected(x[token].double(), experts.gate_up, experts.gate_up_bias, expert)
            if gate.interleaved:
                one, two = both[::2], both[1::2]
            else:
                one, two = both[: len(both) // 2], both[len(both) // 2 :]
            one, two = one.clamp(max=gate.limit), two.clamp(-gate.limit, gate.limit)
            active = (two + gate.shift) * one / (1 + (-gate.alpha * one).exp())
            result = projected(active, experts.down, experts.down_bias, expert)
            out[token] += float(weights[token, place]) * result
    return out


@pytest.mark.usefixtures("products_of_bfloat16")
@settings(max_examples=examples(30), deadline=None)
@given(
    tokens=st.integers(1, 40),
    experts=st.integers(1, 9),
    chosen=st.integers(1, 4),
    hidden=st.sampled_from([8, 64, 72, 136]),
    width=st.sampled_from([8, 64, 72]),
    padding=st.sampled_from([0, 8]),
    biased=st.booleans(),
    gate=st.sampled_from([SWIGLU, GPT_OSS]),
    dtype=st.sampled_from(list(DTYPES)),
    seed=st.integers(0, 99),
    others=st.integers(0, 3),
)
def test_each_token_gets_the_weighted_sum_of_its_experts(
    tokens: int,
    experts: int,
    others: int,
    chosen: int,
    hidden: int,
    width: int,
    padding: int,
    biased: bool,
    gate: ExpertGate,
    dtype: torch.dtype,
    seed: int,
) -> None:
    """With memory around the inputs, and between their rows, that must not be read; beside experts
    of other ranks."""
    torch.manual_seed(seed)
    own = range(seed % (others + 1), seed % (others + 1) + experts)
    chosen = min(chosen, experts + others)

    def drawn(*shape: int, scale: float = 1.0) -> Poisoned:
        return Poisoned((torch.randn(shape) * scale).to(dtype))

    x = Poisoned(torch.full((tokens, hidden + padding), torch.nan, dtype=dtype))
    some_x = x.tensor[:, :hidden]
    some_x.copy_(torch.randn(tokens, hidden))
    parts = [
        drawn(experts, 2 * width, hidden, scale=hidden**-0.5),
        drawn(experts, 2 * width) if biased else None,
        drawn(experts, hidden, width, scale=width**-0.5),
        drawn(experts, hidden) if biased else None,
    ]
    ids = torch.rand(tokens, experts + others).topk(chosen).indices
    weights = Poisoned(torch.rand(tokens, chosen))
    found = sort_by_expert(ids, experts + others, own)
    routes = [Poisoned(part) for part in found[:4]]
    by_expert, rows, of_tokens, ends = (part.tensor for part in routes)
    matrices = ExpertWeights(*(part and part.tensor for part in parts))  # type: ignore[arg-type]
    got = fused_experts(
        some_x,
        weights.tensor,
        Routes(by_expert, rows, of_tokens, ends, found.elsewhere),
        matrices,
        gate,
    )
    assert got.dtype == dtype
    wanted = expected(some_x, weights.tensor, ids, own, matrices, gate)
    tolerance = DTYPES[dtype] * math.sqrt(chosen) * 2
    torch.testing.assert_close(got.double(), wanted, atol=tolerance, rtol=DTYPES[dtype])
    for each in (x, weights, *routes, *parts):
        if each is not None:
            each.check()


@pytest.mark.usefixtures("products_of_bfloat16")
@settings(max_examples=examples(20), deadline=None)
@given(
    tokens=st.integers(1, 20),
    sizes=st.sampled_from([(128, 128), (256, 128), (128, 256)]),
    by_blocks=st.booleans(),
    dtype=st.sampled_from(list(DTYPES)),
    seed=st.integers(0, 99),
)
def test_experts_in_fp8_are_multiplied_as_decoded_ones(
    tokens: int, sizes: tuple[int, int], by_blocks: bool, dtype: torch.dtype, seed: int
) -> None:
    torch.manual_seed(seed)
    (hidden, width), experts = sizes, 3
    x = Poisoned(torch.randn(tokens, hidden).to(dtype))
    parts, decoded = [], []
    for outputs, inputs in ((2 * width, hidden), (hidden, width)):
        values = torch.randn(experts, outputs, inputs).mul_(100).to(torch.float8_e4m3fn)
        shape = (outputs // BLOCK, inputs // BLOCK) if by_blocks else (outputs, 1)
        scales = (torch.rand(experts, *shape) + 0.1) * 0.01 / inputs**0.5
        parts += [Poisoned(values.view(torch.uint8)), Poisoned(scales)]
        flat = scales if by_blocks else scales[..., 0]
        matrices = [Fp8Matrix(*one).decoded() for one in zip(values, flat, strict=True)]
        decoded.append(torch.stack(matrices))
    gate_up, gate_up_scales, down, down_scales = (part.tensor for part in parts)
    e4m3 = gate_up.view(torch.float8_e4m3fn), down.view(torch.float8_e4m3fn)
    kept = ExpertWeights(e4m3[0], None, e4m3[1], None, gate_up_scales, down_scales)
    ids, weights = torch.rand(tokens, experts).topk(2).indices, torch.rand(tokens, 2)
    got = fused_experts(x.tensor, weights, sort_by_expert(ids, experts), kept, SWIGLU)
    plain = ExpertWeights(decoded[0], None, decoded[1], None)
    wanted = expected(x.tensor, weights, ids, range(experts), plain, SWIGLU)
    torch.testing.assert_close(got.double(), wanted, atol=0.06, rtol=2 * DTYPES[dtype])
    for each in (x, *parts):
        each.check()


@pytest.mark.usefixtures("products_of_bfloat16")
@settings(max_examples=examples(20), deadline=None)
@given(
    tokens=st.integers(1, 20),
    sizes=st.sampled_from([(32, 32), (96, 64), (160, 96), (64, 160)]),
    biased=st.booleans(),
    gate=st.sampled_from([SWIGLU, GPT_OSS]),
    dtype=st.sampled_from(list(DTYPES)),
    seed=st.integers(0, 99),
)
def test_experts_in_mxfp4_are_multiplied_as_transformers_decodes_them(
    tokens: int,
    sizes: tuple[int, int],
    biased: bool,
    gate: ExpertGate,
    dtype: torch.dtype,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    (hidden, width), experts = sizes, 3
    x = Poisoned(torch.randn(tokens, hidden).to(dtype))
    parts, biases, decoded = [], [], []
    for outputs, inputs in ((2 * width, hidden), (hidden, width)):
        values = torch.randint(256, (experts, outputs, inputs // 2), dtype=torch.uint8)
        scales = torch.randint(120, 126, (experts, outputs, inputs // 32), dtype=torch.uint8)
        blocks = values.view(experts, outputs, -1, 16)
        decoded.append(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).mT)
        biases.append(Poisoned(torch.randn(experts, outputs).to(dtype)) if biased else None)
        parts += [Poisoned(values), Poisoned(scales)]
    gate_up, gate_up_scales, down, down_scales = (part.tensor for part in parts)
    first, second = (None if bias is None else bias.tensor for bias in biases)
    kept = ExpertWeights(gate_up, first, down, second, gate_up_scales, down_scales)
    ids, weights = torch.rand(tokens, experts).topk(2).indices, torch.rand(tokens, 2)
    got = fused_experts(x.tensor, weights, sort_by_expert(ids, experts), kept, gate)
    plain = ExpertWeights(decoded[0], first, decoded[1], second)
    wanted = expected(x.tensor, weights, ids, range(experts), plain, gate)
    # Relative to the largest, as sums of numbers up to 6 cancel.
    error = (got.double() - wanted).abs().max() / wanted.abs().max()
    assert float(error) < 2 * DTYPES[dtype]
    for each in (x, *parts, *(bias for bias in biases if bias is not None)):
        each.check()


@triton.jit  # type: ignore[untyped-decorator]
def _decode(octets, exponents, out, inputs, BLOCK_IN: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """A column."""
    column = tl.arange(0, 16)
    is_column = column < 1
    tile = mxfp4_tile(
        octets + column * 0, exponents + column * 0, 0, inputs, is_column, BLOCK_IN, 16
    )
    place = tl.arange(0, BLOCK_IN)[:, None]
    tl.store(out + place + column[None, :] * 0, tile, mask=is_column[None, :])


def test_all_numbers_of_mxfp4_are_decoded_exactly() -> None:
    """Each octet with each scale but those of 2^-127, a subnormal number, and of 2^128, which is
    NaN."""
    octets = torch.arange(256, dtype=torch.uint8).repeat(253)
    exponents = torch.arange(1, 254, dtype=torch.uint8).repeat_interleave(16)
    out = torch.empty(512 * 253)
    for scale in range(253):
        _decode[(1,)](
            octets[256 * scale :], exponents[16 * scale :], out[512 * scale :], 512, BLOCK_IN=512
        )
    blocks = octets.view(1, 1, -1, 16)
    wanted = convert_moe_packed_tensors(blocks, exponents.view(1, 1, -1), dtype=torch.float32)
    assert torch.equal(out, wanted.flatten())


@pytest.mark.usefixtures("products_of_bfloat16")
def test_results_are_written_to_the_rows_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = [(42, 40), (42, 24)]
    made = {shape: Poisoned(torch.zeros(shape).bfloat16()) for shape in shapes}
    new_empty = torch.Tensor.new_empty

    def poisoned(self: Tensor, *shape: int, **options: Any) -> Tensor:
        one = made.get(shape)
        return new_empty(self, *shape, **options) if one is None else one.tensor

    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned)
    experts = ExpertWeights(
        torch.randn(3, 80, 24).bfloat16(), None, torch.randn(3, 24, 40).bfloat16(), None
    )
    routes = sort_by_expert(torch.tensor([[0, 2]] * 3 + [[2, 0]] * 18), 3)
    fused_experts(torch.randn(21, 24).bfloat16(), torch.rand(21, 2), routes, experts, SWIGLU)
    for one in made.values():
        one.check()
        assert (one.tensor.abs().sum(1) > 0).all()
