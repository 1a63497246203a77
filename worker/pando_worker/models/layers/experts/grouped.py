"""DeepSeek's mixtures: routed experts that are chosen by groups, and shared ones that every token
has (arXiv:2401.06066, arXiv:2412.19437)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from pando_worker.models.layers.experts.mixture import MixtureOfExperts
from pando_worker.models.layers.mlp import GatedMLP


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertGroups:
    """
    Attributes:
        groups: of adjacent experts, of which `chosen_groups` are chosen first
        chosen: experts a token
        factor: on their weights
        scores: softmax over all logits, or a sigmoid of each
        normalised: whether weights add up to `factor`
    """

    experts: int
    groups: int
    chosen_groups: int
    chosen: int
    factor: float
    scores: Literal["softmax", "sigmoid"]
    normalised: bool


class GroupedChoice(nn.Module):
    """A choice of experts; its module has the name of the router in the checkpoint.

    Attributes:
        e_score_correction_bias: float32 [experts], added to sigmoids for the choice alone
            (arXiv:2412.19437, section 2.1.2); None with a softmax
    """

    def __init__(self, form: ExpertGroups) -> None:
        super().__init__()
        self._form = form
        self.e_score_correction_bias: nn.Parameter | None = None
        if form.scores == "sigmoid":
            empty = torch.empty(form.experts, dtype=torch.float32, device="meta")
            self.e_score_correction_bias = nn.Parameter(empty, requires_grad=False)

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The experts of each token: their weights, float32, and ids, both [n, chosen].

        Args:
            logits: float32 [n, experts]
        """
        form = self._form
        if self.e_score_correction_bias is None:
            scores = ranked = logits.softmax(dim=-1)
        else:
            scores = logits.sigmoid()
            ranked = scores + self.e_score_correction_bias
        if form.chosen_groups < form.groups:
            ranked = ranked.masked_fill(~self._in_best_groups(ranked), -torch.inf)
        ids = ranked.topk(form.chosen).indices
        weights = scores.gather(1, ids)
        if form.normalised:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        return weights * form.factor, ids

    def _in_best_groups(self, ranked: Tensor) -> Tensor:
        """bool [n, experts]. A group counts by its best expert, or with a sigmoid by the two."""
        form = self._form
        grouped = torch.unflatten(ranked, 1, (form.groups, -1))
        best = 1 if self.e_score_correction_bias is None else 2
        of_group = grouped.topk(best, dim=-1).values.sum(dim=-1)
        ids = of_group.topk(form.chosen_groups).indices
        chosen = torch.zeros_like(of_group, dtype=torch.bool).scatter_(1, ids, value=True)
        return chosen.repeat_interleave(grouped.shape[-1], dim=1)


class SharedAndRouted(nn.Module):
    """The sum of both. Attributes have the checkpoint's names."""

    def __init__(self, gate: GroupedChoice, routed: MixtureOfExperts, shared: GatedMLP) -> None:
        super().__init__()
        self.gate = gate
        self.routed = routed
        self.shared_experts = shared

    def forward(self, x: Tensor) -> Tensor:  # [num_tokens, hidden_size]
        out: Tensor = self.routed(x) + self.shared_experts(x)
        return out
