"""Building blocks of the model files: fused projections, rotary positions, gated MLP."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from pando_worker.models.config import DefaultRope, LinearRope, Llama3Rope, Rope, YarnRope


class FusedLinear(nn.Linear):
    """Projections of the same input as one matrix product.

    Args:
        parts: name in the checkpoint and output width of each, in the order of the output.
    """

    def __init__(self, in_features: int, parts: dict[str, int], bias: bool) -> None:
        super().__init__(in_features, sum(parts.values()), bias=bias)
        self.parts = parts


class GatedMLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, hidden_size: int, intermediate_size: int, bias: bool) -> None:
        super().__init__()
        widths = {"gate_proj": intermediate_size, "up_proj": intermediate_size}
        self.gate_up_proj = FusedLinear(hidden_size, widths, bias=bias)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=bias)

    def forward(self, x: Tensor) -> Tensor:  # [num_tokens, hidden_size]
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        out: Tensor = self.down_proj(functional.silu(gate).mul_(up))
        return out


class Rotation(NamedTuple):
    """The rotary angles of a step's tokens, for all heads and layers, in the model's dtype."""

    cos: Tensor  # [num_tokens, 1, head_dim]
    sin: Tensor  # [num_tokens, 1, head_dim], the first half negated

    def apply(self, x: Tensor) -> Tensor:
        """Rotate `x`, [num_tokens, heads, head_dim]: dimension i pairs with i + head_dim / 2."""
        swapped = x.roll(x.shape[-1] // 2, dims=-1)
        return torch.addcmul(x * self.cos, swapped, self.sin)


class RotaryEmbedding:
    """Rotary position embedding with the config's scaling (RoFormer, arXiv:2104.09864).

    Angles are computed once a step for all layers. A table of them would cost as much memory as
    thousands of KV tokens where the context is long, and saves some 10 µs a step.
    """

    def __init__(self, rope: Rope, head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
        frequencies, self._scale = _frequencies(rope, head_dim)
        self._frequencies = frequencies.to(device)  # float32, radians a position, [head_dim / 2]
        self._dtype = dtype

    def rotation(self, positions: Tensor) -> Rotation:
        """Of positions [num_tokens]."""
        angles = positions[:, None, None] * self._frequencies
        cos, sin = angles.cos() * self._scale, angles.sin() * self._scale
        return Rotation(
            cos=torch.cat((cos, cos), dim=-1).to(self._dtype),
            sin=torch.cat((-sin, sin), dim=-1).to(self._dtype),
        )


def _frequencies(rope: Rope, head_dim: int) -> tuple[Tensor, float]:
    """Radians a position, [head_dim / 2], and the factor on cosine and sine."""
    exponents = torch.arange(0, head_dim, 2, device="cpu", dtype=torch.float32) / head_dim
    plain = 1.0 / rope.rope_theta**exponents
    match rope:
        case DefaultRope():
            return plain, 1.0
        case LinearRope(factor=factor):
            return plain / factor, 1.0
        case Llama3Rope():
            return _llama3(rope, plain), 1.0
        case YarnRope():
            return _yarn(rope, plain, head_dim), _yarn_scale(rope)


def _llama3(rope: Llama3Rope, plain: Tensor) -> Tensor:
    """Llama 3.1: slow frequencies divided by `factor`, fast ones kept, between them a blend.

    The weight of the plain frequency is where its turns within the original context lie between
    `low_freq_factor` and `high_freq_factor`.
    """
    turns = rope.original_max_position_embeddings * plain / (2 * math.pi)
    low, high = rope.low_freq_factor, rope.high_freq_factor
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return torch.lerp(plain / rope.factor, plain, keep)


def _yarn(rope: YarnRope, plain: Tensor, head_dim: int) -> Tensor:
    """YaRN (arXiv:2309.00071), section 3.2: as above, with the blend linear in the dimension."""

    def dimension(turns: float) -> float:
        """Where a frequency makes so many turns within the original context."""
        wavelength = rope.original_max_position_embeddings / (turns * 2 * math.pi)
        return head_dim * math.log(wavelength) / (2 * math.log(rope.rope_theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = high - low or 0.001
    dims = torch.arange(head_dim // 2, device="cpu", dtype=torch.float32)
    scale_down = ((dims - low) / width).clamp(0, 1)
    return torch.lerp(plain, plain / rope.factor, scale_down)


def _yarn_scale(rope: YarnRope) -> float:
    """The square root of YaRN's attention temperature (section 3.4), DeepSeek's form included."""
    if rope.attention_factor is not None:
        return rope.attention_factor
    log = math.log(max(rope.factor, 1.0))
    if rope.mscale and rope.mscale_all_dim:
        return (0.1 * rope.mscale * log + 1.0) / (0.1 * rope.mscale_all_dim * log + 1.0)
    return 0.1 * log + 1.0
