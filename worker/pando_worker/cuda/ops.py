"""`CudaOps`: a model's operations, on flashinfer's fused kernels where they exist."""

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from pando_worker.attention.flashinfer.library import FlashinferUnavailable
from pando_worker.models.lora.linear import LoraSite, LoraTokens
from pando_worker.models.mixture import FusedExperts
from pando_worker.models.ops import Angles, SumNorm, TorchOps, cos_sin

# The rotary dimensions that flashinfer's kernel supports.
ROTARY_DIMS = (64, 128, 256, 512)
# Major compute capabilities for which `grouped_mm` is one kernel, in bfloat16 (torch 2.13,
# `_grouped_mm_cuda`): Hopper and the data centre's Blackwell. Elsewhere it waits for the device.
GROUPED_MM_CAPABILITIES = (9, 10)

# Rows per expert up to which the fused kernels run even where there is `grouped_mm`, whose larger
# tiles suit the many rows of prompts. An estimate that has not been measured.
FUSED_ROWS = 64

ExpertLinear = Callable[[Tensor, Tensor, Tensor], Tensor]
AddLora = Callable[[Tensor, Tensor, LoraSite, LoraTokens], None]


def has_grouped_mm(capability: tuple[int, int], dtype: torch.dtype) -> bool:
    """Whether torch multiplies experts in one kernel; arguments as below."""
    return dtype == torch.bfloat16 and capability[0] in GROUPED_MM_CAPABILITIES


def choose_expert_linear(capability: tuple[int, int], dtype: torch.dtype) -> ExpertLinear:
    """`Ops.expert_linear` for a GPU that never waits for it.

    Args:
        capability: the GPU's, major and minor
        dtype: bfloat16 or float16
    """
    if has_grouped_mm(capability, dtype):
        return TorchOps().expert_linear
    # Importing Triton takes time that only models with experts need to spend.
    product: ExpertLinear = import_module("pando_worker.cuda.expert_product").expert_product
    return product


def choose_fused_experts(capability: tuple[int, int], dtype: torch.dtype) -> FusedExperts:
    """`Ops.fused_experts` without waiting for the device; arguments as above."""
    run = import_module("pando_worker.cuda.fused_experts").fused_experts
    return FusedExperts(run, FUSED_ROWS) if has_grouped_mm(capability, dtype) else FusedExperts(run)


def choose_add_lora() -> AddLora:
    """`Ops.add_lora` without waiting for the device."""
    # Importing Triton takes time that only models with adapters need to spend.
    adding: AddLora = import_module("pando_worker.cuda.lora").add_lora
    return adding


def _begin_together(x: Tensor) -> bool:
    """Whether each row begins where flashinfer's norm can read it: the kernel reads as many octets
    at once as divide both 16 and a row, and from elsewhere ends the process's use of the GPU. A
    part of wider rows may begin anywhere."""
    at_once = math.gcd(16, x.shape[-1] * x.itemsize)
    return not x.data_ptr() % at_once and not any(
        stride * x.itemsize % at_once for stride in x.stride()[:-1]
    )


class CudaOps(TorchOps):
    """`Ops` for bfloat16 and float16 on CUDA; torch computes what flashinfer has no kernel for.

    Args:
        expert_linear: for models with experts; by default torch's
        library: flashinfer; tests pass an equivalent
        add_lora: for models with adapters; by default torch's
        fused_experts: for models with experts; by default none
        sum_norm: for several ranks; by default none

    Raises:
        FlashinferUnavailable
    """

    def __init__(
        self,
        expert_linear: ExpertLinear | None = None,
        library: Any = None,
        add_lora: AddLora | None = None,
        fused_experts: FusedExperts | None = None,
        sum_norm: SumNorm | None = None,
    ) -> None:
        self.fused_experts = fused_experts
        self.sum_norm = sum_norm
        self._expert_linear = expert_linear or super().expert_linear
        self._add_lora = add_lora or super().add_lora
        if library is None:
            try:
                library = import_module("flashinfer")
            except ImportError as error:
                raise FlashinferUnavailable(f"flashinfer cannot be imported: {error}") from error
        self._rms_norm = library.rmsnorm
        self._fused_add_rms_norm = library.fused_add_rmsnorm
        self._gemma_rms_norm = library.gemma_rmsnorm
        self._gemma_fused_add_rms_norm = library.gemma_fused_add_rmsnorm
        self._silu_and_mul = library.silu_and_mul
        self._gelu_tanh_and_mul = library.gelu_tanh_and_mul
        self._rope = library.apply_rope_with_cos_sin_cache
        self._rope_inplace = library.apply_rope_with_cos_sin_cache_inplace

    def expert_linear(self, x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
        return self._expert_linear(x, weight, ends)

    def add_lora(self, y: Tensor, x: Tensor, site: LoraSite, step: LoraTokens) -> None:
        self._add_lora(y, x, site, step)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, offset: bool = False) -> Tensor:
        if offset:
            # The kernel takes contiguous rows only, so `reshape` copies heads that are not.
            rows: Tensor = self._gemma_rms_norm(x.reshape(-1, x.shape[-1]), weight, eps)
            return rows.view(x.shape)
        if not _begin_together(x):
            x = x.clone(memory_format=torch.contiguous_format)
        normed: Tensor = self._rms_norm(x, weight, eps)
        return normed

    def add_rms_norm(
        self, x: Tensor, added: Tensor, weight: Tensor, eps: float, offset: bool = False
    ) -> tuple[Tensor, Tensor]:
        fused = self._gemma_fused_add_rms_norm if offset else self._fused_add_rms_norm
        fused(added, x, weight, eps)  # in place: x becomes the sum, `added` its norm
        return x, added

    def gated(self, gate_up: Tensor, gelu: bool = False) -> Tensor:
        product: Tensor = (self._gelu_tanh_and_mul if gelu else self._silu_and_mul)(gate_up)
        return product

    def angles(
        self, positions: Tensor, frequencies: Tensor, scale: float, dtype: torch.dtype
    ) -> Angles:
        """A table of cosines and sines, float32 [num_tokens, dim], and each token's row in it."""
        if 2 * len(frequencies) not in ROTARY_DIMS:
            return super().angles(positions, frequencies, scale, dtype)
        table = torch.cat(cos_sin(positions, frequencies, scale), dim=-1)[:, 0]
        return table, torch.arange(len(table), dtype=torch.int32, device=table.device)

    def table(self, angles: Angles) -> Tensor | None:
        table, rows = angles
        return table if rows.dtype == torch.int32 else None

    def rotate(self, x: Tensor, angles: Angles) -> Tensor:
        dim = x.shape[-1]
        if dim not in ROTARY_DIMS:
            return super().rotate(x, angles)
        table, rows = angles
        heads = x.shape[1]
        if heads == 1:  # the kernel needs both queries and keys
            rotated: Tensor = self._rope(rows, x, x, dim, table)[0]
            return rotated
        self._rope_inplace(rows, x[:, : heads // 2], x[:, heads // 2 :], dim, table)
        return x
