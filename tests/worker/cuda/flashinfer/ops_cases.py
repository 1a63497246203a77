"""Operations of `CudaOps`, compared with torch's, on any device."""

import torch
from torch import Tensor

from pando_worker.cuda.ops import CudaOps
from pando_worker.models.ops import TorchOps

PLAIN = TorchOps()


def assert_close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got.float(), expected.float(), atol=0.05, rtol=0.02)


def check_norms(ops: CudaOps, device: torch.device) -> None:
    """Norms of hidden states and of strided heads; Llama's, then Gemma's."""
    qkv = torch.randn(7, 6, 128, device=device).bfloat16()
    weight = torch.randn(128, device=device).bfloat16()
    beside = torch.randn(7, 12 + 128, device=device).bfloat16()[:, 12:]  # begins at any octet
    for x in (qkv[:, 0].contiguous(), qkv, qkv[:, 2:5], beside):
        for offset in (False, True):
            expected = PLAIN.rms_norm(x, weight, 1e-5, offset)
            assert_close(ops.rms_norm(x, weight, 1e-5, offset), expected)
    x, added = (torch.randn(7, 128, device=device).bfloat16() for _ in range(2))
    for offset in (False, True):
        both = PLAIN.add_rms_norm(x, added, weight, 1e-5, offset)
        got = ops.add_rms_norm(x.clone(), added.clone(), weight, 1e-5, offset)
        for each, want in zip(got, both, strict=True):
            assert_close(each, want)


def check_activations(ops: CudaOps, device: torch.device) -> None:
    gate_up = torch.randn(7, 2 * 96, device=device).bfloat16()
    for gelu in (False, True):
        assert_close(ops.gated(gate_up, gelu), PLAIN.gated(gate_up, gelu))


def check_rotation(ops: CudaOps, device: torch.device, heads: int, dim: int) -> None:
    """Rotation of strided heads, like queries and keys, entirely or partially."""
    whole = torch.randn(9, heads + 2, dim + 16, device=device).bfloat16()
    at = (torch.arange(9, device=device) * 11, torch.rand(dim // 2, device=device), 0.7)
    for x in (whole.clone()[..., :dim], whole.clone()[:, :heads, :dim]):
        expected = PLAIN.rotate(x, PLAIN.angles(*at, x.dtype))
        angles = ops.angles(*at, x.dtype)
        assert_close(ops.rotate(x, angles), expected)  # may overwrite x
