"""flashinfer's norms, activation and rotation, compared with torch's operators."""

from importlib import import_module

import pytest
import torch
from torch import Tensor

from pando_worker.attention.backend import AttentionLayer, HeadTurn, KVScales
from pando_worker.attention.device_pages import list_pages
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.cuda import fp8_quantize, kv_store, page_lists
from pando_worker.cuda.expert_product import expert_product
from pando_worker.cuda.fp8 import fp8_products
from pando_worker.cuda.fused_experts import fused_experts
from pando_worker.cuda.ops import CudaOps
from pando_worker.cuda.turn_heads import turn_heads
from pando_worker.models.fp8 import Fp8Matrix, Scaling
from pando_worker.models.mixture import SWIGLU, ExpertGate, ExpertWeights, sort_by_expert
from pando_worker.runner.cuda.capture import CudaCapture
from tests.worker.cuda.flashinfer import ops_cases
from tests.worker.cuda.kernels.turning import turned


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


@pytest.mark.parametrize("gate", [SWIGLU, ExpertGate(1.702, 1.0, 7.0, interleaved=True)])
def test_fused_experts_equal_torch_and_follow_their_counts_in_a_graph(
    gpu: torch.device, gate: ExpertGate
) -> None:
    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, device=gpu).div_(shape[-1] ** 0.5).bfloat16()

    x, weights = drawn(30, 72), torch.rand(30, 3, device=gpu)
    bias = drawn(9, 72)
    experts = ExpertWeights(drawn(9, 2 * 136, 72), None, drawn(9, 72, 136), bias)
    ids = torch.zeros(30, 3, dtype=torch.int64, device=gpu)

    def run() -> Tensor:
        return fused_experts(x, weights, sort_by_expert(ids, 9), experts, gate)

    replay, out = CudaCapture()(run)
    for most in (3, 9):
        ids.copy_(torch.rand(30, most).topk(3).indices)
        replay()
        both = torch.einsum("nh,ncoh->nco", x.float(), experts.gate_up[ids].float())
        outputs = torch.einsum("nci,nchi->nch", gate(both), experts.down[ids].float())
        expected = ((outputs + bias[ids].float()) * weights[..., None]).sum(1)
        torch.testing.assert_close(out.float(), expected, atol=0.05, rtol=0.02)


def test_pages_are_listed_as_by_torch(gpu: torch.device) -> None:
    table = torch.arange(9 * 5000, dtype=torch.int32, device=gpu).view(9, 5000)
    counts = torch.tensor([1, 5000, 1024, 1025, 7], dtype=torch.int32)
    rows, firsts = torch.tensor([[8, 0, 3, 3, 1], [4999, 0, 10, 3000, 0]], dtype=torch.int32)
    indptr = torch.nn.functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0)).to(gpu)
    args = table, rows.to(gpu), firsts.to(gpu), indptr, int(counts.sum()), 5000
    assert page_lists.list_pages(*args).tolist() == list_pages(*args).tolist()


@pytest.mark.parametrize("kept", [torch.float8_e4m3fn, torch.bfloat16])
def test_keys_and_values_are_stored_as_by_torch(gpu: torch.device, kept: torch.dtype) -> None:
    layer = AttentionLayer(index=0, heads=2, kv_heads=2, head_dim=192, v_head_dim=128, scale=1.0)
    pools = [TokenToKVPool([layer], 40, kept, gpu) for _ in range(2)]
    for pool in pools:
        pool.clear()
        if pool.is_fp8:
            pool.scales = [KVScales(0.7, 2.0)]
    qkv = torch.randn(7, 2 * (64 + 192 + 128), device=gpu).mul_(200).bfloat16()
    _, k, v = (
        torch.unflatten(part, 1, (2, -1)) for part in torch.split(qkv, [128, 384, 256], dim=1)
    )
    slots = torch.tensor([3, 39, 0, 11, 12, 13, 7], device=gpu)
    kv_store.store_kv(k, v, pools[0].of(0), slots)
    pools[1].store(0, slots, k, v)
    for got, expected in zip(pools[0].k + pools[0].v, pools[1].k + pools[1].v, strict=True):
        assert torch.equal(got.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("scaling", ["rows", "blocks"])
@pytest.mark.parametrize("rows", [1, 7, 300])
def test_products_in_fp8_are_near_those_of_decoded_weights(
    gpu: torch.device, scaling: Scaling, rows: int
) -> None:
    library = import_module("flashinfer.gemm")
    capability = torch.cuda.get_device_capability(gpu)
    product = fp8_products(capability, fp8_quantize.quantize, library).of(scaling)
    if product is None:
        pytest.skip(f"compute capability {capability} has no product for {scaling}")
    values = torch.randn(512, 768, device=gpu).mul_(60).clamp_(-448, 448).to(torch.float8_e4m3fn)
    shape = (512,) if scaling == "rows" else (4, 6)
    weight = Fp8Matrix(values, torch.rand(shape, device=gpu).mul_(0.01))
    x = torch.randn(rows, 768, device=gpu).bfloat16()
    replay, out = CudaCapture()(lambda: product(x, weight))
    replay()
    expected = x.float() @ weight.decoded().T
    assert float((out.float() - expected).norm() / expected.norm()) < 0.04


@pytest.mark.parametrize("kept", [torch.float8_e4m3fn, torch.bfloat16])
def test_heads_are_turned_and_stored_as_in_float64(gpu: torch.device, kept: torch.dtype) -> None:
    layer = AttentionLayer(index=0, heads=6, kv_heads=2, head_dim=128, v_head_dim=128, scale=1.0)
    pool = TokenToKVPool([layer], 40, kept, gpu)
    qkv = torch.randn(7, 10, 128, device=gpu).bfloat16()
    angles = torch.rand(7, 32, device=gpu) * 6
    norms = [torch.rand(128, device=gpu).bfloat16() for _ in range(2)]
    table = torch.cat((angles.cos(), angles.sin()), dim=1)
    turn = HeadTurn(table, norms[0], norms[1], 1e-5, offset=True)
    slots = torch.tensor([3, 39, 0, 11, 12, 13, 7], device=gpu)
    q = turn_heads(qkv, turn, layer, pool.of(0), slots)
    got = q, pool.k[0].view(torch.uint8)[slots].view(kept), pool.v[0].view(torch.uint8)[slots]
    for each, expected in zip((*got[:2], got[2].view(kept)), turned(qkv, turn, layer), strict=True):
        torch.testing.assert_close(each.float().double(), expected, atol=2e-2, rtol=0.08)
