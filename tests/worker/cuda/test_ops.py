"""`CudaOps` on flashinfer's functions from its documentation, compared with torch."""

import pytest
import torch

from pando_worker.cuda.ops import CudaOps
from tests.worker.cuda import ops_cases
from tests.worker.cuda.flashinfer_by_the_book import ByTheBook

CPU = torch.device("cpu")


@pytest.fixture
def ops() -> CudaOps:
    torch.manual_seed(0)
    return CudaOps(ByTheBook())


def test_norms_equal_torch(ops: CudaOps) -> None:
    ops_cases.check_norms(ops, CPU)


def test_activations_equal_torch(ops: CudaOps) -> None:
    ops_cases.check_activations(ops, CPU)


@pytest.mark.parametrize("heads", [1, 2, 5])
@pytest.mark.parametrize("dim", [64, 128, 96])
def test_rotation_equals_torch(ops: CudaOps, heads: int, dim: int) -> None:
    ops_cases.check_rotation(ops, CPU, heads, dim)
