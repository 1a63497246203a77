"""Mixture of experts (arXiv:1701.06538, arXiv:2401.04088): a router sends each token through a few
of many feed-forward layers and sums their outputs.

A step sorts its tokens by expert. A GPU has kernels for all that follows (`Ops.fused_experts`).
Otherwise each projection of all experts is one grouped matrix product (`Ops.expert_linear`). None
of them needs token counts on the host, so a CUDA graph can capture them. On the CPU the product is
torch's loop in C++. Measured on one core with 8 to 128 experts, it is as fast as a Python loop with
dozens of tokens per expert, and up to 4 times faster for small layers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from pando_worker.adapters.layout import Section
from pando_worker.models.build import Build, Fill
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.fp8 import BLOCK, Fp8Matrix, Scaling
from pando_worker.models.layers.linear import Rows
from pando_worker.models.lora.experts import tokens_by_expert
from pando_worker.models.lora.linear import LoraSite, LoraTokens
from pando_worker.models.mixture import (
    SWIGLU,
    ExpertGate,
    ExpertWeights,
    FusedExperts,
    Routes,
    sort_by_expert,
)
from pando_worker.models.mxfp4 import RUN, Mxfp4Matrix


@dataclass(frozen=True, slots=True)
class ExpertSections:
    """What of a `MixtureOfExperts` may have adapters. Names are relative to its parent.

    Attributes:
        module: of all experts in transformers
        router, router_module: the router's name in the checkpoint, and in transformers
        gate_up, down: of each expert; all have as many, of the same sizes
    """

    module: str
    router: str
    router_module: str
    gate_up: tuple[tuple[Section, ...], ...]
    down: tuple[tuple[Section, ...], ...]


class ExpertTensors(Protocol):
    """How a checkpoint names and lays out the tensors of a `MixtureOfExperts`."""

    def fills(self, moe: "MixtureOfExperts") -> Iterator[Fill]:
        """The fills of `moe`; names are relative to its parent."""
        ...

    def of_expert(self, expert: int) -> tuple[str, ...]:
        """Tensors that no other expert has a part of; names as above."""
        ...

    def sections(self, moe: "MixtureOfExperts") -> ExpertSections: ...


ExpertChoice = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From logits, [n, experts], to the weights and ids of each token's experts."""


class ExpertSites(NamedTuple):
    """Where the adapters of a layer's router and experts are."""

    router: LoraSite
    gate_up: LoraSite
    down: LoraSite


class MixtureOfExperts(nn.Module):
    """SwiGLU experts; each rank has a share of every expert's intermediate outputs, or with
    `Build.expert_parallel` a share of the experts. With `Build.sums_in_norms` a rank's output is
    its part of the sum.

    Args:
        intermediate_size: of one expert
        choice: the experts of each token and their weights, as `choose` gives them
        tensors: names and layout in the checkpoint
        exact_router: whether logits are computed in float32, whatever the model's dtype; then the
            router has neither biases nor adapters
        bias: whether the router and all projections have biases
        gate: by default silu(gate) * up, with gate and up side by side

    Attributes:
        experts: this rank's
        gate_up: [this rank's experts, 2 * its intermediate, hidden_size]
        down: [this rank's experts, hidden_size, its intermediate]
        gate_up_scales, down_scales: as of `ExpertWeights`
        lora: where the layer's adapters are; None if the model has none

    Raises:
        UnsupportedModel: the ranks cannot share the experts or the intermediate size evenly, or a
            share of it is not a multiple of 16 bytes, which `grouped_mm` needs.
    """

    def __init__(
        self,
        build: Build,
        *,
        hidden_size: int,
        intermediate_size: int,
        experts: int,
        choice: ExpertChoice,
        tensors: ExpertTensors,
        exact_router: bool = False,
        bias: bool = False,
        gate: ExpertGate = SWIGLU,
    ) -> None:
        super().__init__()
        taken, self.experts = range(intermediate_size), range(experts)
        if build.expert_parallel:
            self.experts = build.group.share(experts, "experts")
        else:
            taken = build.group.share(intermediate_size, "intermediate outputs of an expert")
        for size, what in ((hidden_size, "hidden_size"), (len(taken), "an expert's share")):
            if size * build.dtype.itemsize % 16:
                raise UnsupportedModel(
                    f"{what} of {size} elements ({build.dtype}) is not a multiple of 16 bytes, as"
                    " grouped matrix products need; use fewer ranks"
                )
        self.rows = Rows(intermediate_size, taken)
        self.router = build.parameter(experts, hidden_size)
        own = len(self.experts)
        self.gate_up = build.parameter(own, 2 * len(taken), hidden_size)
        self.down = build.parameter(own, hidden_size, len(taken))
        self.router_bias = build.parameter(experts) if bias else None
        self.gate_up_bias = build.parameter(own, 2 * len(taken)) if bias else None
        self.down_bias = build.parameter(own, hidden_size) if bias else None
        self.gate_up_scales: nn.Parameter | None = None
        self.down_scales: nn.Parameter | None = None
        self._of_narrow: FusedExperts | None = None
        self._choice = choice
        assert not (exact_router and bias)
        self._exact_router = exact_router
        self._ops = build.ops
        self._gate = gate
        self._group = build.group
        self._sums = not build.sums_in_norms
        self._tensors = tensors
        self.lora: ExpertSites | None = None

    def forward(self, x: Tensor) -> Tensor:  # [num_tokens, hidden_size]
        step = None if self.lora is None else self.lora.router.memory.step
        weights, ids = self._choice(self._logits(x, step))
        routes = sort_by_expert(ids, len(self.router), self.experts)
        fused = self._of_narrow or self._ops.fused_experts
        changed = step is not None and not step.linear_alone  # by adapters
        if fused is not None and not changed and fused.takes(len(routes.rows), len(self.router)):
            outputs = fused.run(x, weights, routes, self._weights, self._gate)
        else:
            outputs = add_up(self._rows(x, routes, step if changed else None), weights, routes)
        return self._group.all_reduce(outputs) if self._sums else outputs

    def _logits(self, x: Tensor, step: LoraTokens | None) -> Tensor:
        """Of the router, [num_tokens, experts]."""
        if self._exact_router:
            return functional.linear(x.float(), self.router.float())
        logits = functional.linear(x, self.router, self.router_bias)
        if self.lora is not None and step is not None:
            self._ops.add_lora(logits, x, self.lora.router, step)
        return logits

    @property
    def _weights(self) -> ExpertWeights:
        whole = len(self.rows.taken) == self.rows.total
        # Added once: by the rank that has the expert, or by rank 0.
        bias = self.down_bias if whole or self._group.rank == 0 else None
        return ExpertWeights(
            self.gate_up,
            self.gate_up_bias,
            self.down,
            bias,
            self.gate_up_scales,
            self.down_scales,
        )

    def keep_fp8(self, scaling: Scaling, fused: FusedExperts) -> None:
        """Have matrices of e4m3, which are multiplied by `fused` only: not for adapters."""

        def pair(plain: Tensor) -> tuple[nn.Parameter, nn.Parameter]:
            experts, outputs, inputs = plain.shape
            size = (outputs, 1) if scaling == "rows" else (outputs // BLOCK, inputs // BLOCK)
            values = torch.empty(plain.shape, dtype=torch.float8_e4m3fn, device="meta")
            scales = torch.empty((experts, *size), dtype=torch.float32, device="meta")
            made = (nn.Parameter(each, requires_grad=False) for each in (values, scales))
            return next(made), next(made)

        self._of_narrow = fused
        self.gate_up, self.gate_up_scales = pair(self.gate_up)
        self.down, self.down_scales = pair(self.down)

    def keep_mxfp4(self, fused: FusedExperts) -> None:
        """Have matrices of 4-bit floats, which are multiplied by `fused` only: not for adapters."""

        def pair(plain: Tensor) -> tuple[nn.Parameter, nn.Parameter]:
            experts, outputs, inputs = plain.shape
            shapes = (experts, outputs, inputs // 2), (experts, outputs, inputs // RUN)
            made = (torch.empty(shape, dtype=torch.uint8, device="meta") for shape in shapes)
            values, scales = (nn.Parameter(each, requires_grad=False) for each in made)
            return values, scales

        self._of_narrow = fused
        self.gate_up, self.gate_up_scales = pair(self.gate_up)
        self.down, self.down_scales = pair(self.down)

    def memory_by_input(self, weight: Tensor, place: int) -> Tensor | Mxfp4Matrix:
        """The memory of a row of `gate_up` or `down`, for numbers [1, inputs, outputs]."""
        one = slice(place, place + 1)
        if weight.dtype != torch.uint8:
            return weight[one].mT
        scales = self.gate_up_scales if weight is self.gate_up else self.down_scales
        assert scales is not None
        return Mxfp4Matrix(weight[one], scales[one])

    def memory_of_gate(self, expert: int) -> Tensor | Fp8Matrix:
        return _part(self.gate_up, self.gate_up_scales, expert, slice(0, len(self.rows.taken)))

    def memory_of_up(self, expert: int) -> Tensor | Fp8Matrix:
        width = len(self.rows.taken)
        return _part(self.gate_up, self.gate_up_scales, expert, slice(width, 2 * width))

    def memory_of_down(self, expert: int) -> Tensor | Fp8Matrix:
        return _part(self.down, self.down_scales, expert, slice(0, self.down.shape[1]))

    def _rows(self, x: Tensor, routes: Routes, step: LoraTokens | None) -> Tensor:
        """The outputs of each token's experts, [rows, hidden_size], one operation after the other.

        Args:
            step: with what adapters add to experts; None: nothing
        """
        own, sites, rows = self._weights, self.lora, None
        if step is not None:
            rows = tokens_by_expert(step, routes.tokens, routes.experts, len(self.router), len(x))
        inputs = x[routes.tokens]
        gate_up = self._product(inputs, own.gate_up, own.gate_up_bias, routes)
        if sites is not None and rows is not None:
            self._ops.add_lora(gate_up, inputs, sites.gate_up, rows)
        active = self._ops.gated(gate_up) if self._gate == SWIGLU else self._gate(gate_up)
        outputs = self._product(active, own.down, own.down_bias, routes)
        if sites is not None and rows is not None:
            self._ops.add_lora(outputs, active, sites.down, rows)
        if routes.elsewhere:  # nothing was written there
            outputs.masked_fill_((routes.experts == len(self.experts))[:, None], 0.0)
        return outputs

    def _product(self, x: Tensor, weight: Tensor, bias: Tensor | None, routes: Routes) -> Tensor:
        """[rows, in] to [rows, out], each row with its expert's weight; weights [experts, out,
        in]."""
        out = self._ops.expert_linear(x, weight, routes.ends)
        if bias is None:
            return out
        experts = routes.experts.clamp(max=len(bias) - 1) if routes.elsewhere else routes.experts
        return out.add_(bias[experts])

    def sections(self) -> ExpertSections:
        return self._tensors.sections(self)

    def fills(self) -> Iterator[Fill]:
        return self._tensors.fills(self)

    def elsewhere(self) -> Iterator[str]:
        """Names of tensors of other ranks' experts, relative to the parent."""
        for expert in range(len(self.router)):
            if expert not in self.experts:
                yield from self._tensors.of_expert(expert)


def _part(weight: Tensor, scales: Tensor | None, expert: int, rows: slice) -> Tensor | Fp8Matrix:
    """The memory of some rows of an expert's matrix."""
    own = weight[expert, rows]
    if scales is None:
        return own
    if scales.shape[1] == weight.shape[1]:
        return Fp8Matrix(own, scales[expert, rows, 0])
    return Fp8Matrix(own, scales[expert, rows.start // BLOCK : rows.stop // BLOCK])


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
