"""Matrices of 8-bit floats (e4m3) that stay so in memory, and what devices multiply them with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pando_worker.models.mixture import FusedExperts

BLOCK = 128  # rows and columns of a block with one scale
LARGEST = 448.0

Scaling = Literal["rows", "blocks"]


@dataclass(frozen=True, slots=True, eq=False)
class Fp8Matrix:
    """
    Attributes:
        values: e4m3 [outputs, inputs]
        scales: by which values are multiplied: float32 [outputs], or of blocks
            [outputs / BLOCK, inputs / BLOCK]
    """

    values: Tensor
    scales: Tensor

    def decoded(self) -> Tensor:
        """float32 [outputs, inputs]"""
        if self.scales.dim() == 1:
            return self.values.float() * self.scales[:, None]
        scales = self.scales.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
        return self.values.float() * scales


Fp8Product = Callable[[Tensor, Fp8Matrix], Tensor]
"""[num_tokens, inputs] to [num_tokens, outputs], in the dtype of the first."""

Quantizer = Callable[[Tensor, int], tuple[Tensor, Tensor]]
"""x, [num_tokens, inputs], as e4m3 and float32 scales, [num_tokens, inputs / group]: each run of
`group` numbers has a scale, such that the largest becomes LARGEST."""


@dataclass(frozen=True, slots=True)
class Fp8Products:
    """A device's products; None where it has none.

    Attributes:
        experts: of matrices of experts, with scales of any form
    """

    rows: Fp8Product | None
    blocks: Fp8Product | None
    experts: FusedExperts | None = None

    def of(self, scaling: Scaling) -> Fp8Product | None:
        return self.rows if scaling == "rows" else self.blocks


def quantized(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """A `Quantizer` by torch's operators."""
    runs = x.float().unflatten(1, (-1, group))  # type: ignore[no-untyped-call]
    most = runs.abs().amax(-1)
    scales = torch.where(most > 0, most / LARGEST, 1.0)
    values = (runs / scales[..., None]).clamp(-LARGEST, LARGEST).flatten(1)
    return values.to(torch.float8_e4m3fn), scales
