"""flashinfer's norms, activation and rotation, compared with torch's operators."""

import pytest
import torch

from pando_worker.cuda.ops import CudaOps
from tests.worker.cuda import ops_cases


@pytest.fixture
def ops() -> CudaOps:
    torch.manual_seed(0)
    return CudaOps()


def test_norms_equal_torch(ops: CudaOps, gpu: torch.device) -> None:
    ops_cases.check_norms(ops, gpu)


def test_activations_equal_torch(ops: CudaOps, gpu: torch.device) -> None:
    ops_cases.check_activations(ops, gpu)


@pytest.mark.parametrize("heads", [1, 2, 5])
@pytest.mark.parametrize("dim", [64, 128, 96])
def test_rotation_equals_torch(ops: CudaOps, gpu: torch.device, heads: int, dim: int) -> None:
    ops_cases.check_rotation(ops, gpu, heads, dim)
