"""Products with matrices that stay in fp8: torch's for one scale a row, flashinfer's for blocks.

All quantize their input while they run, a token or a run of 128 numbers at a time. Input scales of
checkpoints are not used. Hopper's product by blocks quantizes by itself; Blackwell's takes rows in
multiples of four.
"""

import logging
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pando_worker.cuda.toolchain import missing_for_flashinfer, missing_for_triton
from pando_worker.models.fp8 import (
    BLOCK,
    Fp8Matrix,
    Fp8Product,
    Fp8Products,
    Quantizer,
    quantized,
)
from pando_worker.models.mixture import FusedExperts
from pando_worker.settings import WorkerSettings

# The first compute capability whose tensor cores multiply e4m3.
FP8_CAPABILITY = (8, 9)
HOPPER, BLACKWELL = 9, (10, 12)  # major ones, of flashinfer's products by blocks


log = logging.getLogger("pando.worker.cuda")


def choose_fp8(
    settings: WorkerSettings, device: torch.device, dtype: torch.dtype
) -> Fp8Products | None:
    """The products for a model's weights; None if they must be decoded while they load."""
    wanted = settings.quantization == "auto" and settings.load_format == "auto"
    # Products by rows give bfloat16 only.
    if device.type != "cuda" or dtype != torch.bfloat16 or not wanted:
        return None
    quantize: Quantizer = quantized
    if not missing_for_triton():
        quantize = import_module("pando_worker.cuda.fp8_quantize").quantize
    capability = torch.cuda.get_device_capability(device)
    experts = None
    # Experts with adapters are computed one product after the other, which are not in fp8.
    if capability >= FP8_CAPABILITY and not missing_for_triton() and not settings.max_loras:
        experts = FusedExperts(import_module("pando_worker.cuda.fused_experts").fused_experts)
    library = None
    if settings.attention_backend != "torch" and not missing_for_flashinfer():
        try:
            library = import_module("flashinfer.gemm")
        except ImportError as error:
            log.warning("fp8 weights in blocks are decoded: flashinfer: %s", error)
    return replace(fp8_products(capability, quantize, library), experts=experts)


def fp8_products(
    capability: tuple[int, int], quantize: Quantizer, library: Any = None
) -> Fp8Products:
    """
    Args:
        capability: the GPU's, major and minor
        library: `flashinfer.gemm`; None if it cannot be used
    """
    if capability < FP8_CAPABILITY:
        return Fp8Products(None, None)
    blocks: Fp8Product | None = None
    if library is not None and capability[0] == HOPPER:
        blocks = HopperBlocks(library)
    elif library is not None and capability[0] in BLACKWELL:
        blocks = BlackwellBlocks(library, quantize)
    return Fp8Products(ByRows(quantize), blocks)


@dataclass(frozen=True, slots=True)
class ByRows:
    """An `Fp8Product` for a scale a row, by cuBLAS or CUTLASS."""

    quantize: Quantizer

    def __call__(self, x: Tensor, weight: Fp8Matrix) -> Tensor:
        values, scales = self.quantize(x, x.shape[1])
        return torch._scaled_mm(
            values,
            weight.values.T,
            scale_a=scales,
            scale_b=weight.scales[None],
            out_dtype=x.dtype,
        )


@dataclass(frozen=True, slots=True)
class HopperBlocks:
    """An `Fp8Product` for blocks, by DeepGEMM."""

    library: Any

    def __call__(self, x: Tensor, weight: Fp8Matrix) -> Tensor:
        out: Tensor = self.library.fp8_blockscale_gemm_sm90(
            x, weight.values, None, weight.scales, out_dtype=x.dtype
        )
        return out


@dataclass(frozen=True, slots=True)
class BlackwellBlocks:
    """An `Fp8Product` for blocks, by CUTLASS."""

    library: Any
    quantize: Quantizer

    def __call__(self, x: Tensor, weight: Fp8Matrix) -> Tensor:
        rows = len(x)
        if missing := -rows % 4:
            x = functional.pad(x, (0, 0, 0, missing))
        values, scales = self.quantize(x, BLOCK)
        out: Tensor = self.library.gemm_fp8_nt_groupwise(
            values,
            weight.values,
            scales,
            weight.scales,
            scale_major_mode="K",
            scale_granularity_mnk=(1, BLOCK, BLOCK),
            out_dtype=x.dtype,
        )
        return out[:rows]
