"""Mixture of experts (arXiv:1701.06538, arXiv:2401.04088): a router sends each token through a few
of many feed-forward layers and sums their outputs.

A step sorts its tokens by expert; each projection of all experts is then one grouped matrix product
(`Ops.expert_linear`). On a GPU this is one kernel that needs no token counts on the host, so a CUDA
graph can capture it. On the CPU it is torch's loop in C++. Measured on one core with 8 to 128
experts, it is as fast as a Python loop with dozens of tokens per expert, and up to 4 times faster
for small layers.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from pando_worker.models.build import Build, Fill
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.layers.linear import Rows


class ExpertTensors(Protocol):
    """How a checkpoint names and lays out the tensors of a `MixtureOfExperts`."""

    def fills(self, moe: "MixtureOfExperts") -> Iterator[Fill]:
        """The fills of `moe`; names are relative to its parent."""
        ...


class Routes(NamedTuple):
    """The routes of n tokens, each to the same number of experts; rows are sorted by expert."""

    experts: Tensor  # [rows], the expert of each row
    rows: Tensor  # [rows], the position of each in token order
    tokens: Tensor  # [rows]
    ends: Tensor  # int32 [experts], the end of each expert's rows


class MixtureOfExperts(nn.Module):
    """SwiGLU experts; each rank has a share of every expert's intermediate outputs.

    Args:
        intermediate_size: of one expert
        chosen: experts per token
        normalised: whether the weights of the chosen experts sum to 1; otherwise the softmax is
            over all experts
        tensors: names and layout in the checkpoint
        bias: whether the router and all projections have biases
        activation: [rows, gate and up as in the checkpoint] to [rows, intermediate]; by default
            silu(gate) * up, with gate and up side by side

    Attributes:
        gate_up: [experts, 2 * this rank's intermediate, hidden_size]
        down: [experts, hidden_size, this rank's intermediate]

    Raises:
        UnsupportedModel: the ranks cannot share the intermediate size evenly, or a share of it is
            not a multiple of 16 bytes, which `grouped_mm` needs.
    """

    def __init__(
        self,
        build: Build,
        *,
        hidden_size: int,
        intermediate_size: int,
        experts: int,
        chosen: int,
        normalised: bool,
        tensors: ExpertTensors,
        bias: bool = False,
        activation: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        taken = build.group.share(intermediate_size, "intermediate outputs of an expert")
        for size, what in ((hidden_size, "hidden_size"), (len(taken), "an expert's share")):
            if size * build.dtype.itemsize % 16:
                raise UnsupportedModel(
                    f"{what} of {size} elements ({build.dtype}) is not a multiple of 16 bytes, as"
                    " grouped matrix products need; use fewer ranks"
                )
        self.rows = Rows(intermediate_size, taken)
        self.router = build.parameter(experts, hidden_size)
        self.gate_up = build.parameter(experts, 2 * len(taken), hidden_size)
        self.down = build.parameter(experts, hidden_size, len(taken))
        self.router_bias = build.parameter(experts) if bias else None
        self.gate_up_bias = build.parameter(experts, 2 * len(taken)) if bias else None
        self.down_bias = build.parameter(experts, hidden_size) if bias else None
        self._chosen = chosen
        self._normalised = normalised
        self._ops = build.ops
        self._activation = activation
        self._group = build.group
        self._tensors = tensors

    def forward(self, x: Tensor) -> Tensor:  # [num_tokens, hidden_size]
        logits = functional.linear(x, self.router, self.router_bias)
        weights, ids = choose(logits, self._chosen, normalised=self._normalised)
        routes = sort_by_expert(ids, len(self.router))
        gate_up = self._product(x[routes.tokens], self.gate_up, self.gate_up_bias, routes)
        bias = self.down_bias if self._group.rank == 0 else None  # added once, by rank 0
        activation = self._activation or self._ops.gated
        outputs = self._product(activation(gate_up), self.down, bias, routes)
        return self._group.all_reduce(add_up(outputs, weights, routes))

    def _product(self, x: Tensor, weight: Tensor, bias: Tensor | None, routes: Routes) -> Tensor:
        """[rows, in] to [rows, out], each row with its expert's weight; weights [experts, out,
        in]."""
        out = self._ops.expert_linear(x, weight, routes.ends)
        return out if bias is None else out.add_(bias[routes.experts])

    def fills(self) -> Iterator[Fill]:
        return self._tensors.fills(self)


def choose(logits: Tensor, chosen: int, *, normalised: bool) -> tuple[Tensor, Tensor]:
    """The best experts of each token: their weights, float32, and ids, both [n, chosen].

    Args:
        logits: [n, experts]
        normalised: whether the softmax is over the chosen experts, or over all
    """
    logits = logits.float()
    if normalised:
        best, ids = logits.topk(chosen)
        return best.softmax(dim=-1), ids
    weights, ids = logits.softmax(dim=-1).topk(chosen)
    return weights, ids


def sort_by_expert(ids: Tensor, experts: int) -> Routes:
    """The routes for ids [n, chosen], without waiting for the device."""
    by_expert, rows = ids.flatten().sort(stable=True)
    numbers = torch.arange(experts, device=ids.device)
    ends = torch.searchsorted(by_expert, numbers, right=True, out_int32=True)
    return Routes(by_expert, rows, rows // ids.shape[1], ends)


def add_up(outputs: Tensor, weights: Tensor, routes: Routes) -> Tensor:
    """The weighted sum, [n, hidden_size], of each token's outputs, [rows, hidden_size].

    Outputs are first put in token order, since adding to rows in place is not deterministic on
    CUDA.

    Args:
        weights: [n, chosen]
    """
    in_order = torch.empty_like(outputs)
    in_order[routes.rows] = outputs
    spread = in_order.view(*weights.shape, -1)
    return torch.bmm(weights[:, None].to(spread.dtype), spread)[:, 0]
