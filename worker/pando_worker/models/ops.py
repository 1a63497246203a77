"""The operations that layers are made of, behind a small interface: torch's own, or faster."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional


class Ops(Protocol):
    """What a device may do better than operator by operator. Results are new tensors."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """[..., in] to [..., out] by weight [out, in] and bias [out]."""
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Over the last dimension, times weight."""
        ...

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """silu(gate) * up of [num_tokens, gate and up side by side]."""
        ...

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[num_tokens, heads, dim] by a `Rotation`'s cos and sin, [num_tokens, 1, dim]."""
        ...


class ChosenOps:
    """`Ops` that can be exchanged under a model that stands already: by what was measured on it."""

    def __init__(self, ops: Ops) -> None:
        self.use(ops)

    def use(self, ops: Ops) -> None:
        self.linear = ops.linear
        self.rms_norm = ops.rms_norm
        self.silu_mul = ops.silu_mul
        self.rotate = ops.rotate


class TorchOps:
    """Everywhere, in every dtype."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return functional.linear(x, weight, bias)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        return functional.rms_norm(x, weight.shape, weight, eps)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return functional.silu(gate).mul_(up)

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)
