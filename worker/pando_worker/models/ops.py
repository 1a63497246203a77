"""The operations that layers use, behind a small interface: torch's, or faster ones."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from pando_worker.models.grouped import Groups
from pando_worker.models.lora.linear import LoraSite, LoraTokens, add_lora
from pando_worker.models.mixture import FusedExperts

_WIDENED = 2**20  # numbers of a weight that are widened at a time

Angles = tuple[Tensor, Tensor]
"""The rotary angles of a step's tokens, in the form of the `Ops` that made them."""


class SumNorm(Protocol):
    """The sum over all ranks and `Ops.add_rms_norm` of it, in one kernel."""

    def takes(self, x: Tensor) -> bool:
        """Whether the kernel can and should run for a step; equal on all ranks."""
        ...

    def run(
        self, x: Tensor, part: Tensor, weight: Tensor, eps: float, offset: bool
    ) -> tuple[Tensor, Tensor]:
        """x + the sum of the ranks' parts, and its norm, [num_tokens, hidden_size] each."""
        ...


class Ops(Protocol):
    """Operations that a device may fuse or speed up. Unless noted, results are new tensors."""

    @property
    def sum_norm(self) -> SumNorm | None:
        """None: the group's sum, then `add_rms_norm`."""
        ...

    @property
    def fused_experts(self) -> FusedExperts | None:
        """Mixtures of experts in kernels of their own; None: `expert_linear` and torch."""
        ...

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """[..., in] to [..., out] by weight [out, in], of x's dtype or narrower, and bias [out]."""
        ...

    def grouped_linear(self, x: Tensor, weight: Groups, bias: Tensor | None = None) -> Tensor:
        """Like `linear` for [num_tokens, in], with a weight of grouped integers."""
        ...

    def expert_linear(self, x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
        """Each row of x by its expert's weight: [rows, in] to [rows, out].

        Args:
            x: sorted by expert
            weight: [experts, out, in]
            ends: int32 [experts], the end of each expert's rows
        """
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, offset: bool = False) -> Tensor:
        """Normalise the last dimension, times weight; with `offset`, times 1 + weight in
        float32."""
        ...

    def add_rms_norm(
        self, x: Tensor, added: Tensor, weight: Tensor, eps: float, offset: bool = False
    ) -> tuple[Tensor, Tensor]:
        """x + added and its norm, [num_tokens, hidden_size] each; may reuse the inputs' memory."""
        ...

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        """Normalise the last dimension, times weight, plus a bias if there is one."""
        ...

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """x + y, of one shape."""
        ...

    def gelu(self, x: Tensor) -> Tensor:
        """With the error function, not the tanh approximation."""
        ...

    def gated(self, gate_up: Tensor, gelu: bool = False) -> Tensor:
        """silu(gate) * up for [num_tokens, gate and up side by side]; with `gelu`, the tanh
        approximation of gelu instead of silu."""
        ...

    def embedding(self, ids: Tensor, weight: Tensor) -> Tensor:
        """Rows of a table, [num_tokens, hidden_size]."""
        ...

    def grouped_embedding(self, ids: Tensor, weight: Groups) -> Tensor:
        """Like `embedding`, for grouped integers."""
        ...

    def angles(
        self, positions: Tensor, frequencies: Tensor, scale: float, dtype: torch.dtype
    ) -> Angles:
        """Angles for `rotate`, from positions and radians per position, float32 [dim / 2]; cosines
        and sines are multiplied by `scale`.

        Args:
            positions: [num_tokens], or [num_tokens, dim / 2] if they differ between frequencies
        """
        ...

    def rotate(self, x: Tensor, angles: Angles) -> Tensor:
        """Rotate x, [num_tokens, heads, dim], pairing dimension i with i + dim / 2. May reuse the
        memory of x."""
        ...

    def table(self, angles: Angles) -> Tensor | None:
        """Angles as `HeadTurn.table`, for attention backends that rotate; None if they cannot."""
        ...

    def add_lora(self, y: Tensor, x: Tensor, site: LoraSite, step: LoraTokens) -> None:
        """Add to y, [num_tokens, outputs], what adapters make of x, [num_tokens, inputs]."""
        ...


class ChosenOps:
    """`Ops` that can be replaced in a finished model, after measurements with it."""

    def __init__(self, ops: Ops) -> None:
        self.use(ops)

    def use(self, ops: Ops) -> None:
        self.linear = ops.linear
        self.grouped_linear = ops.grouped_linear
        self.expert_linear = ops.expert_linear
        self.fused_experts = ops.fused_experts
        self.sum_norm = ops.sum_norm
        self.rms_norm = ops.rms_norm
        self.add_rms_norm = ops.add_rms_norm
        self.layer_norm = ops.layer_norm
        self.add = ops.add
        self.gelu = ops.gelu
        self.gated = ops.gated
        self.embedding = ops.embedding
        self.grouped_embedding = ops.grouped_embedding
        self.angles = ops.angles
        self.rotate = ops.rotate
        self.table = ops.table
        self.add_lora = ops.add_lora


def cos_sin(positions: Tensor, frequencies: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines, float32 [num_tokens, 1, dim / 2] each; arguments as in `Ops.angles`."""
    if positions.dim() == 1:
        positions = positions[:, None]
    turns = positions[:, None] * frequencies
    return turns.cos() * scale, turns.sin() * scale


def _widening_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Widens a part of the weight at a time, which caches hold until it is multiplied."""
    size = max(1, _WIDENED // weight.shape[1])
    if len(weight) <= size:
        return functional.linear(x, weight.to(x.dtype), bias)
    out = x.new_empty(*x.shape[:-1], len(weight))
    for start in range(0, len(weight), size):
        part = slice(start, start + size)
        out[..., part] = functional.linear(x, weight[part].to(x.dtype))
    return out if bias is None else out.add_(bias)


class TorchOps:
    """Torch's operators, for every device and dtype."""

    fused_experts: FusedExperts | None = None
    sum_norm: SumNorm | None = None

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if weight.dtype != x.dtype:
            return _widening_linear(x, weight, bias)
        return functional.linear(x, weight, bias)

    def grouped_linear(self, x: Tensor, weight: Groups, bias: Tensor | None = None) -> Tensor:
        """Decodes the whole weight each time, which is slow: for trials and tests."""
        return self.linear(x, weight.decoded().to(x.dtype), bias)

    def expert_linear(self, x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
        return functional.grouped_mm(x, weight.mT, offs=ends)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float, offset: bool = False) -> Tensor:
        if offset:
            return self.rms_norm(x.float(), 1.0 + weight.float(), eps).type_as(x)
        return functional.rms_norm(x, weight.shape, weight, eps)

    def add_rms_norm(
        self, x: Tensor, added: Tensor, weight: Tensor, eps: float, offset: bool = False
    ) -> tuple[Tensor, Tensor]:
        total = x + added
        return total, self.rms_norm(total, weight, eps, offset)

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
        return functional.layer_norm(x, weight.shape, weight, bias, eps)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def gelu(self, x: Tensor) -> Tensor:
        return functional.gelu(x)

    def gated(self, gate_up: Tensor, gelu: bool = False) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        active = functional.gelu(gate, approximate="tanh") if gelu else functional.silu(gate)
        return active.mul_(up)

    def embedding(self, ids: Tensor, weight: Tensor) -> Tensor:
        return functional.embedding(ids, weight)

    def grouped_embedding(self, ids: Tensor, weight: Groups) -> Tensor:
        return self.embedding(ids, weight.decoded())

    def angles(
        self, positions: Tensor, frequencies: Tensor, scale: float, dtype: torch.dtype
    ) -> Angles:
        """Cosines and sines, [num_tokens, 1, dim] in `dtype`; the first half of sines is
        negated."""
        cos, sin = cos_sin(positions, frequencies, scale)
        return torch.cat((cos, cos), dim=-1).to(dtype), torch.cat((-sin, sin), dim=-1).to(dtype)

    def rotate(self, x: Tensor, angles: Angles) -> Tensor:
        cos, sin = angles
        return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)

    def table(self, angles: Angles) -> Tensor | None:
        return None

    def add_lora(self, y: Tensor, x: Tensor, site: LoraSite, step: LoraTokens) -> None:
        add_lora(y, x, site, step)
