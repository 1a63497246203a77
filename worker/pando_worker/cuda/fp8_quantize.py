"""`quantize`: activations as e4m3, with a scale for each token or each run of its numbers, by a
Triton kernel. It computes what `models.fp8.quantized` does with several of torch's."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from pando_worker.cuda.kv_store import e4m3_bits
from pando_worker.models.fp8 import LARGEST

MOST_BLOCK = 1024


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
