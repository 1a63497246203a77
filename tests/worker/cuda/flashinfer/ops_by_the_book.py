"""flashinfer's norms, activations, rotation and top-p for the CPU, from its documentation."""

import math

import torch
from torch import Tensor

from tests.worker.cuda.flashinfer.signatures import bound


@bound("flashinfer.rmsnorm")
def rmsnorm(input: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    assert input.dim() in (2, 3) and input.dtype == weight.dtype != torch.float32
    at_once = math.gcd(16, input.shape[-1] * input.itemsize)  # else: misaligned address
    starts = [stride * input.itemsize for stride in input.stride()[:-1]]
    assert not any(octets % at_once for octets in (input.data_ptr(), *starts))
    x = input.float()
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return (x * scale * weight.float()).to(input.dtype)


@bound("flashinfer.fused_add_rmsnorm")
def fused_add_rmsnorm(input: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6) -> None:
    assert input.dim() == 2 and input.shape == residual.shape
    residual += input
    input.copy_(rmsnorm(residual, weight, eps))


@bound("flashinfer.gemma_rmsnorm")
def gemma_rmsnorm(input: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    assert input.dim() == 2 and input.dtype == weight.dtype != torch.float32
    x = input.float()
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return (x * scale * (weight.float() + 1)).to(input.dtype)


@bound("flashinfer.gemma_fused_add_rmsnorm")
def gemma_fused_add_rmsnorm(
    input: Tensor, residual: Tensor, weight: Tensor, eps: float = 1e-6
) -> None:
    assert input.shape == residual.shape
    residual += input
    input.copy_(gemma_rmsnorm(residual, weight, eps))


@bound("flashinfer.silu_and_mul")
def silu_and_mul(input: Tensor) -> Tensor:
    gate, up = input.float().chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up).to(input.dtype)


@bound("flashinfer.gelu_tanh_and_mul")
def gelu_tanh_and_mul(input: Tensor) -> Tensor:
    assert input.shape[-1] * input.dtype.itemsize % 16 == 0
    gate, up = input.float().chunk(2, dim=-1)
    return (torch.nn.functional.gelu(gate, approximate="tanh") * up).to(input.dtype)


@bound("flashinfer.apply_rope_with_cos_sin_cache")
def apply_rope_with_cos_sin_cache(
    positions: Tensor, query: Tensor, key: Tensor, head_size: int, cos_sin_cache: Tensor
) -> tuple[Tensor, Tensor]:
    assert cos_sin_cache.dtype == torch.float32 and cos_sin_cache.is_contiguous()
    assert head_size in (64, 128, 256, 512) and positions.dtype == torch.int32
    cos, sin = (part[:, None] for part in cos_sin_cache[positions.long()].chunk(2, dim=-1))

    def rotated(x: Tensor) -> Tensor:
        first, second = x.view(len(x), -1, head_size).float().chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        return turned.to(x.dtype).view_as(x)

    return rotated(query), rotated(key)


@bound("flashinfer.apply_rope_with_cos_sin_cache_inplace")
def apply_rope_with_cos_sin_cache_inplace(
    positions: Tensor, query: Tensor, key: Tensor, head_size: int, cos_sin_cache: Tensor
) -> None:
    rotated = apply_rope_with_cos_sin_cache(positions, query, key, head_size, cos_sin_cache)
    for x, result in zip((query, key), rotated, strict=True):
        x.copy_(result)


@bound("flashinfer.sampling.top_p_renorm_probs")
def top_p_renorm_probs(probs: Tensor, top_p: Tensor, is_deterministic: bool = False) -> Tensor:
    assert is_deterministic and probs.dtype == top_p.dtype == torch.float32
    torch.testing.assert_close(probs.sum(-1), torch.ones(len(probs)))
    assert ((top_p > 0) & (top_p < 1)).all()
    ordered = probs.sort(dim=-1, descending=True).values
    before = ordered.cumsum(dim=-1) - ordered
    last = (before < top_p[:, None]).sum(-1, keepdim=True) - 1
    kept = torch.where(probs >= ordered.gather(1, last), probs, 0.0)
    return kept / kept.sum(-1, keepdim=True)
