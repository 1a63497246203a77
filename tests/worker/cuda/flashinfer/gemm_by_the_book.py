"""flashinfer's products in fp8, written for the CPU from its documentation, with its checks."""

from typing import Any

import torch
from torch import Tensor

from pando_worker.models.fp8 import BLOCK, Fp8Matrix, quantized
from tests.worker.cuda.flashinfer.signatures import bound

E4M3 = torch.float8_e4m3fn


def _check_weight(weight: Tensor, scale: Tensor) -> None:
    rows, inputs = weight.shape
    assert weight.dtype == E4M3 and scale.dtype == torch.float32
    assert weight.is_contiguous() and scale.is_contiguous()
    assert inputs % BLOCK == 0 and rows % 64 == 0
    assert scale.shape == (-(-rows // BLOCK), inputs // BLOCK)


@bound("flashinfer.gemm.fp8_blockscale_gemm_sm90")
def fp8_blockscale_gemm_sm90(
    input: Tensor,
    weight: Tensor,
    input_scale: Tensor | None = None,
    weight_scale: Tensor | None = None,
    out: Tensor | None = None,
    out_dtype: Any = None,
) -> Tensor:
    assert input.dtype == torch.bfloat16 and input.dim() == 2 and input.is_contiguous()
    assert input_scale is None and weight_scale is not None and out is None
    _check_weight(weight, weight_scale)
    values, scales = quantized(input, BLOCK)
    return _product(values, weight, scales, weight_scale).to(out_dtype or torch.bfloat16)


@bound("flashinfer.gemm.gemm_fp8_nt_groupwise")
def gemm_fp8_nt_groupwise(
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    scale_major_mode: str | None = None,
    mma_sm: int = 1,
    scale_granularity_mnk: tuple[int, int, int] = (1, 128, 128),
    out: Tensor | None = None,
    out_dtype: Any = None,
    backend: str = "cutlass",
) -> Tensor:
    assert scale_major_mode == "K" and scale_granularity_mnk == (1, 128, 128) and out is None
    assert a.dtype == E4M3 and a.is_contiguous() and len(a) % 4 == 0
    assert a_scale.shape == (len(a), a.shape[1] // BLOCK) and a_scale.dtype == torch.float32
    assert a_scale.is_contiguous()
    _check_weight(b, b_scale)
    return _product(a, b, a_scale, b_scale).to(out_dtype or torch.bfloat16)


def _product(a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor) -> Tensor:
    x = a.float() * a_scale.repeat_interleave(BLOCK, 1)
    return x @ Fp8Matrix(b, b_scale).decoded().T
