"""`CudaOps` on flashinfer's functions from its documentation, compared with torch."""

import pytest
import torch

from pando_worker.cuda.expert_product import expert_product
from pando_worker.cuda.ops import (
    FUSED_ROWS,
    CudaOps,
    choose_expert_linear,
    choose_fused_experts,
)
from tests.worker.cuda.flashinfer import ops_cases
from tests.worker.cuda.flashinfer.by_the_book import ByTheBook

CPU = torch.device("cpu")


@pytest.fixture
def ops() -> CudaOps:
    torch.manual_seed(0)
    return CudaOps(library=ByTheBook())


def test_norms_equal_torch(ops: CudaOps) -> None:
    ops_cases.check_norms(ops, CPU)


def test_activations_equal_torch(ops: CudaOps) -> None:
    ops_cases.check_activations(ops, CPU)


@pytest.mark.parametrize("heads", [1, 2, 5])
@pytest.mark.parametrize("dim", [64, 128, 96])
def test_rotation_equals_torch(ops: CudaOps, heads: int, dim: int) -> None:
    ops_cases.check_rotation(ops, CPU, heads, dim)


@pytest.mark.parametrize(
    ("capability", "dtype", "in_torch"),
    [
        ((8, 0), torch.bfloat16, False),  # A100
        ((8, 9), torch.bfloat16, False),  # L40S
        ((9, 0), torch.bfloat16, True),  # H100
        ((9, 0), torch.float16, False),
        ((10, 0), torch.bfloat16, True),  # B200
        ((12, 0), torch.bfloat16, False),  # RTX 5090
    ],
)
def test_experts_use_grouped_mm_only_where_it_does_not_wait_for_the_device(
    capability: tuple[int, int], dtype: torch.dtype, in_torch: bool
) -> None:
    assert (choose_expert_linear(capability, dtype) is not expert_product) == in_torch
    fused = choose_fused_experts(capability, dtype)
    assert fused.takes(FUSED_ROWS * 8, experts=8)
    assert fused.takes(FUSED_ROWS * 8 + 1, experts=8) != in_torch
