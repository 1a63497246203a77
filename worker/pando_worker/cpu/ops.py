"""`CpuOps`: a model's operations by the C++ kernels where those are faster, else by torch."""

import torch
from torch import Tensor

from pando_worker.cpu.kernels import Kernels
from pando_worker.models.ops import Angles, TorchOps


class CpuOps:
    """`Ops` for float32 on the CPU.

    Attributes:
        linear_rows: up to so many rows a linear layer runs in the kernel; above, in torch. The
            many rows of a prompt pay for packing the weights, which the kernel does not do.
    """

    def __init__(self, kernels: Kernels, threads: int, linear_rows: int) -> None:
        self.linear_rows = linear_rows
        self._threads = threads
        self._plain = TorchOps()
        self._kernels = kernels

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        rows, width = len(x), weight.shape[0]
        if rows > self.linear_rows or x.dim() != 2 or not x.is_contiguous():
            return self._plain.linear(x, weight, bias)
        out = torch.empty(rows, width)
        inner = weight.shape[1]
        self._kernels.linear(
            x.data_ptr(),
            inner,
            weight.data_ptr(),
            None if bias is None else bias.data_ptr(),
            out.data_ptr(),
            rows,
            width,
            inner,
            self._threads,
        )
        return out

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        if not x.is_contiguous():
            return self._plain.rms_norm(x, weight, eps)
        out = torch.empty_like(x)
        size = x.shape[-1]
        rows = x.numel() // size
        self._kernels.rms_norm(
            x.data_ptr(), size, weight.data_ptr(), 0.0, out.data_ptr(), rows, size, eps
        )
        return out

    def add_rms_norm(
        self, x: Tensor, added: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        if not (x.is_contiguous() and added.is_contiguous()):
            return self._plain.add_rms_norm(x, added, weight, eps)
        rows, size = x.shape
        self._kernels.add_rms_norm(
            x.data_ptr(),
            added.data_ptr(),
            weight.data_ptr(),
            added.data_ptr(),
            rows,
            size,
            eps,
        )
        return x, added

    def offset_rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return self.rms_norm(x, 1.0 + weight, eps)

    def add_offset_rms_norm(
        self, x: Tensor, added: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        total = x + added
        return total, self.offset_rms_norm(total, weight, eps)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        rows, width = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty(rows, width)
        self._kernels.gated(gate_up.data_ptr(), out.data_ptr(), rows, width, 0, self._threads)
        return out

    def gelu_mul(self, gate_up: Tensor) -> Tensor:
        return self._plain.gelu_mul(gate_up)

    def angles(self, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Angles:
        return self._plain.angles(cos, sin, dtype)

    def rotate(self, x: Tensor, angles: Angles) -> Tensor:
        tokens, heads, dim = x.shape
        if x.stride(2) != 1 or x.stride(1) != dim:
            return self._plain.rotate(x, angles)
        cos, sin = angles
        out = torch.empty(tokens, heads, dim)
        self._kernels.rotate(
            x.data_ptr(),
            x.stride(0),
            cos.data_ptr(),
            sin.data_ptr(),
            out.data_ptr(),
            tokens,
            heads,
            dim,
        )
        return out
