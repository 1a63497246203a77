"""What a mixture of experts computes: its gate, weights and routes, and how kernels are called."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class ExpertGate:
    """(up + shift) * gate * sigmoid(alpha * gate), with gate <= limit and |up| <= limit.

    Attributes:
        interleaved: whether gate and up take turns; otherwise gate is in front of up
    """

    alpha: float = 1.0
    shift: float = 0.0
    limit: float = math.inf
    interleaved: bool = False

    def __call__(self, gate_up: Tensor) -> Tensor:  # [rows, 2 * width] to [rows, width]
        if self.interleaved:
            gate, up = gate_up[..., ::2], gate_up[..., 1::2]
        else:
            gate, up = gate_up.chunk(2, dim=-1)
        gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        return torch.sigmoid(self.alpha * gate).mul_(gate).mul_(up + self.shift)


SWIGLU = ExpertGate()


class ExpertWeights(NamedTuple):
    """This rank's; the biases of a mixture without any are None.

    Matrices of e4m3 have float32 scales, [experts, outputs / m, inputs / n]: one for each m outputs
    and n inputs. Those of mxfp4 are uint8, as in `Mxfp4Matrix`.
    """

    gate_up: Tensor  # [experts, 2 * width, hidden_size]
    gate_up_bias: Tensor | None  # [experts, 2 * width]
    down: Tensor  # [experts, hidden_size, width]
    down_bias: Tensor | None  # [experts, hidden_size]
    gate_up_scales: Tensor | None = None
    down_scales: Tensor | None = None


class Routes(NamedTuple):
    """The routes of n tokens, each to the same number of experts; rows are sorted by expert.

    Rows behind the last end go to experts of other ranks, and count as zeros here.
    """

    experts: Tensor  # [rows], the expert of each row
    rows: Tensor  # [rows], the position of each in token order
    tokens: Tensor  # [rows]
    ends: Tensor  # int32 [experts], the end of each expert's rows
    elsewhere: bool = False  # whether some rows may go to other ranks


def sort_by_expert(ids: Tensor, experts: int, own: range | None = None) -> Routes:
    """The routes for ids [n, chosen], without waiting for the device.

    Args:
        own: this rank's of the experts, which are numbered from 0 in the routes; by default all
    """
    own = range(experts) if own is None else own
    elsewhere = len(own) < experts
    if elsewhere:
        ids = ids - own.start
        ids = ids.masked_fill_((ids < 0) | (ids >= len(own)), len(own))
    by_expert, rows = ids.flatten().sort(stable=True)
    numbers = torch.arange(len(own), device=ids.device)
    ends = torch.searchsorted(by_expert, numbers, right=True, out_int32=True)
    return Routes(by_expert, rows, rows // ids.shape[1], ends, elsewhere)


@dataclass(frozen=True, slots=True)
class FusedExperts:
    """A device's own kernels for all experts of a layer.

    Attributes:
        run: of x, [n, hidden_size], the experts' weights for each token, float32 [n, chosen], the
            routes, the weights and the gate: the weighted sum of the experts' outputs,
            [n, hidden_size]
        most_rows: per expert, up to which they are faster than one product after the other
    """

    run: Callable[[Tensor, Tensor, Routes, ExpertWeights, ExpertGate], Tensor]
    most_rows: float = math.inf

    def takes(self, rows: int, experts: int) -> bool:
        return rows <= self.most_rows * experts
