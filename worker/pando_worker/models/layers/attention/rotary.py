"""Rotary positions (RoFormer, arXiv:2104.09864), with scaling for longer contexts."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from pando_worker.models.build import Build
from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.models.ops import Angles, Ops
from pando_worker.models.rope import (
    DefaultRope,
    LinearRope,
    Llama3Rope,
    LongRope,
    MRope,
    Rope,
    YarnRope,
)


class Rotation(NamedTuple):
    """The rotary angles of a step's tokens, for all heads and layers."""

    angles: Angles
    dim: int  # rotary_dim
    ops: Ops

    @property
    def table(self) -> Tensor | None:
        """For attention backends that rotate; None: they cannot."""
        return self.ops.table(self.angles)

    def apply(self, x: Tensor) -> Tensor:
        """Rotate the first `rotary_dim` dimensions of `x`, [num_tokens, heads, head_dim].

        Dimension i is paired with i + rotary_dim / 2.
        """
        if self.dim < x.shape[-1]:
            return torch.cat((self.apply(x[..., : self.dim]), x[..., self.dim :]), dim=-1)
        return self.ops.rotate(x, self.angles)


class RotaryEmbedding:
    """Computes the rotation of a step's tokens.

    Angles are computed once per step for all layers. A table would save about 10 µs per step, but
    with a long context it takes as much memory as thousands of KV tokens.

    Args:
        rotary_dim: how many leading dimensions of a head are rotated
        mrope: of a model whose tokens may have positions in three dimensions

    Raises:
        BrokenCheckpoint: the number is odd, or does not match the scaling's factors or `mrope`.
    """

    def __init__(
        self, build: Build, rope: Rope, rotary_dim: int, mrope: MRope | None = None
    ) -> None:
        if rotary_dim % 2:
            raise BrokenCheckpoint(f"the number of rotary dimensions per head is odd: {rotary_dim}")
        frequencies, self._scale = _frequencies(rope, rotary_dim, build.context_length)
        self._frequencies = frequencies.to(build.device)  # float32, [rotary_dim / 2]
        # The dimension by which each frequency turns, int64 [rotary_dim / 2].
        self._dimensions = _dimensions(mrope, len(frequencies)).to(build.device) if mrope else None
        self._dtype = build.dtype
        self._ops = build.ops

    def rotation(self, positions: Tensor) -> Rotation:
        """Of positions [num_tokens], or [3, num_tokens] for time, height and width."""
        if positions.dim() == 2:
            assert self._dimensions is not None, "only M-RoPE has positions in three dimensions"
            positions = positions[self._dimensions].T
        made = self._ops.angles(positions, self._frequencies, self._scale, self._dtype)
        return Rotation(made, 2 * len(self._frequencies), self._ops)


def _dimensions(mrope: MRope, frequencies: int) -> Tensor:
    """Which of time, height and width (0, 1, 2) turns each frequency, int64 [frequencies]."""
    if (given := sum(mrope.sections)) != frequencies:
        raise BrokenCheckpoint(f"mrope_section has {given} frequencies, not {frequencies}")
    if not mrope.interleaved:
        sections = torch.tensor(mrope.sections, device="cpu")
        return torch.arange(3, device="cpu").repeat_interleave(sections)
    found = torch.zeros(frequencies, dtype=torch.int64, device="cpu")
    for dimension in (1, 2):  # time takes what these leave
        found[dimension : 3 * mrope.sections[dimension] : 3] = dimension
    return found


def _frequencies(rope: Rope, dim: int, context_length: int) -> tuple[Tensor, float]:
    """Radians per position, [dim / 2], and the factor on cosine and sine."""
    exponents = torch.arange(0, dim, 2, device="cpu", dtype=torch.float32) / dim
    plain = 1.0 / rope.rope_theta**exponents
    match rope:
        case DefaultRope():
            return plain, 1.0
        case LinearRope(factor=factor):
            return plain / factor, 1.0
        case Llama3Rope():
            return _llama3(rope, plain), 1.0
        case YarnRope():
            return _yarn(rope, plain, dim), _yarn_scale(rope)
        case LongRope():
            return _long(rope, plain, context_length), _long_scale(rope)


def _llama3(rope: Llama3Rope, plain: Tensor) -> Tensor:
    """Llama 3.1: slow frequencies are divided by `factor`, fast ones are kept, others are blended.

    The weight of the plain frequency is the position of its turns within the original context
    between `low_freq_factor` and `high_freq_factor`.
    """
    turns = rope.original_max_position_embeddings * plain / (2 * math.pi)
    low, high = rope.low_freq_factor, rope.high_freq_factor
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return torch.lerp(plain / rope.factor, plain, keep)


def _yarn(rope: YarnRope, plain: Tensor, dim: int) -> Tensor:
    """YaRN (arXiv:2309.00071), section 3.2: as in Llama 3.1, with a blend linear in the
    dimension."""

    def dimension(turns: float) -> float:
        """The dimension whose frequency makes this many turns within the original context."""
        wavelength = rope.original_max_position_embeddings / (turns * 2 * math.pi)
        return dim * math.log(wavelength) / (2 * math.log(rope.rope_theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = high - low or 0.001
    dims = torch.arange(dim // 2, device="cpu", dtype=torch.float32)
    scale_down = ((dims - low) / width).clamp(0, 1)
    return torch.lerp(plain, plain / rope.factor, scale_down)


def _yarn_scale(rope: YarnRope) -> float:
    """The square root of YaRN's attention temperature (section 3.4), including DeepSeek's form."""
    if rope.attention_factor is not None:
        return rope.attention_factor
    log = math.log(max(rope.factor, 1.0))
    if rope.mscale and rope.mscale_all_dim:
        return (0.1 * rope.mscale * log + 1.0) / (0.1 * rope.mscale_all_dim * log + 1.0)
    return 0.1 * log + 1.0


def _long(rope: LongRope, plain: Tensor, context_length: int) -> Tensor:
    """LongRoPE (arXiv:2402.13753): each frequency is divided by its own factor.

    There are two sets of factors. transformers switches to the long ones when a sequence exceeds
    the original context, but its cached keys would still have the short ones. So, as in vLLM, the
    longest sequence that is served decides for all.
    """
    is_long = context_length > rope.original_max_position_embeddings
    name, factors = (
        ("long_factor", rope.long_factor) if is_long else ("short_factor", rope.short_factor)
    )
    if len(factors) != len(plain):
        raise BrokenCheckpoint(f"rope has {len(factors)} values in {name}, not {len(plain)}")
    return plain / torch.tensor(factors, device="cpu", dtype=torch.float32)


def _long_scale(rope: LongRope) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.factor <= 1:
        return 1.0
    return math.sqrt(1 + math.log(rope.factor) / math.log(rope.original_max_position_embeddings))
