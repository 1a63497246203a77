"""flashinfer's norms, activation and rotation, compared with torch's operators."""

import pytest
import torch

from pando_worker.cuda.expert_product import expert_product
from pando_worker.cuda.ops import CudaOps
from pando_worker.runner.cuda.cuda_graph import CudaCapture
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_products_of_experts_equal_torch_and_follow_their_counts_in_a_graph(
    gpu: torch.device, dtype: torch.dtype
) -> None:
    x = torch.randn(200, 72, device=gpu, dtype=dtype)
    weight = torch.randn(9, 136, 72, device=gpu, dtype=dtype)
    ends = torch.zeros(9, dtype=torch.int32, device=gpu)
    replay, out = CudaCapture()(lambda: expert_product(x, weight, ends))
    for counts in ([200, 0, 0, 0, 0, 0, 0, 0, 0], [0, 1, 16, 17, 0, 70, 90, 6, 0]):
        ends.copy_(torch.tensor(counts).cumsum(0))
        replay()
        experts = torch.repeat_interleave(torch.arange(9), torch.tensor(counts)).to(gpu)
        expected = torch.einsum("ri,roi->ro", x.float(), weight[experts].float())
        torch.testing.assert_close(out.float(), expected, atol=0.1, rtol=0.02)
