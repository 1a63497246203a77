"""Numbers as e4m3, with scales by their largest, by Triton kernels.

`quantize` is for activations, with a scale for each token or each run of its numbers, and
`quantize_queries` for attention, with a scale for each head. They compute what
`models.fp8.quantized` and `quantized_queries` of `attention.flashinfer.fp8_queries` do with several
of torch's.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from pando_worker.cuda.kv_store import e4m3_bits
from pando_worker.models.fp8 import LARGEST

MOST_BLOCK = 1024
QUERIES = 16  # tokens of a head that one program takes


def quantize(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """A `Quantizer`."""
    tokens, inputs = x.shape
    assert x.stride(1) == 1 and inputs % group == 0
    values = torch.empty(tokens, inputs, dtype=torch.uint8, device=x.device)
    scales = torch.empty(tokens, inputs // group, dtype=torch.float32, device=x.device)
    block = min(triton.next_power_of_2(group), MOST_BLOCK)
    _quantize[(tokens, inputs // group)](
        x, values, scales, inputs, group, x.stride(0), LARGEST, BLOCK=block
    )
    return values.view(torch.float8_e4m3fn), scales


@triton.jit  # type: ignore[untyped-decorator]
def _quantize(  # type: ignore[no-untyped-def]
    x,
    values,
    scales,
    inputs,
    group,
    x_stride,
    largest,
    BLOCK: tl.constexpr,  # noqa: N803
):
    token = tl.program_id(0).to(tl.int64)
    run = tl.program_id(1)
    lanes = tl.arange(0, BLOCK)
    own = x + token * x_stride + run * group
    most = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, group, BLOCK):
        numbers = tl.load(own + start + lanes, mask=start + lanes < group, other=0.0)
        most = tl.maximum(most, tl.abs(numbers.to(tl.float32)))
    scale = tl.max(most, 0) / largest
    scale = tl.where(scale > 0, scale, 1.0)
    tl.store(scales + token * tl.num_programs(1) + run, scale)
    target = values + token * inputs + run * group
    for start in range(0, group, BLOCK):
        mask = start + lanes < group
        numbers = tl.load(own + start + lanes, mask=mask, other=0.0).to(tl.float32)
        tl.store(target + start + lanes, e4m3_bits(numbers / scale), mask=mask)


def quantize_queries(q: Tensor) -> tuple[Tensor, Tensor]:
    """A `QueryQuantizer`. Takes queries whose heads have any strides."""
    tokens, heads, dim = q.shape
    assert q.stride(2) == 1
    values = torch.empty(tokens, heads, dim, dtype=torch.uint8, device=q.device)
    largest = torch.zeros(heads, dtype=torch.int32, device=q.device)
    scales = torch.empty(heads, dtype=torch.float32, device=q.device)
    grid = (triton.cdiv(tokens, QUERIES), heads)
    given = tokens, dim, q.stride(0), q.stride(1)
    sizes = {"QUERIES": QUERIES, "BLOCK": triton.next_power_of_2(dim)}
    _largest_queries[grid](q, largest, *given, **sizes)
    _quantize_queries[grid](q, largest, values, scales, *given, LARGEST, **sizes)
    return values.view(torch.float8_e4m3fn), scales


@triton.jit  # type: ignore[untyped-decorator]
def _queries_of(  # type: ignore[no-untyped-def]
    q,
    tokens,
    dim,
    token_stride,
    head_stride,
    QUERIES: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    """A program's queries in float32, [QUERIES, BLOCK], the numbers of their tokens, and a mask."""
    token = tl.program_id(0).to(tl.int64) * QUERIES + tl.arange(0, QUERIES)[:, None]
    lane = tl.arange(0, BLOCK)[None, :]
    mask = (token < tokens) & (lane < dim)
    own = q + token * token_stride + tl.program_id(1) * head_stride + lane
    return tl.load(own, mask=mask, other=0.0).to(tl.float32), token, mask


@triton.jit(do_not_specialize=["tokens"])  # type: ignore[untyped-decorator]
def _largest_queries(  # type: ignore[no-untyped-def]
    q,
    largest,
    tokens,
    dim,
    token_stride,
    head_stride,
    QUERIES: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    numbers, _, _ = _queries_of(q, tokens, dim, token_stride, head_stride, QUERIES, BLOCK)
    # The bits of numbers that are not negative are ordered as the numbers.
    bits = tl.abs(numbers).to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0x7F800000, bits, 0)
    tl.atomic_max(largest + tl.program_id(1), tl.max(tl.max(bits, 1), 0))


@triton.jit(do_not_specialize=["tokens"])  # type: ignore[untyped-decorator]
def _quantize_queries(  # type: ignore[no-untyped-def]
    q,
    largest,
    values,
    scales,
    tokens,
    dim,
    token_stride,
    head_stride,
    most,
    QUERIES: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
):
    head, heads = tl.program_id(1), tl.num_programs(1)
    numbers, token, mask = _queries_of(q, tokens, dim, token_stride, head_stride, QUERIES, BLOCK)
    scale = tl.load(largest + head).to(tl.float32, bitcast=True) / most
    scale = tl.where(scale > 0, scale, 1.0)
    if tl.program_id(0) == 0:
        tl.store(scales + head, scale)
    target = values + (token * heads + head) * dim + tl.arange(0, BLOCK)[None, :]
    tl.store(target, e4m3_bits(numbers / scale), mask=mask)
