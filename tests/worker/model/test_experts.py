"""The mixture of experts compared with single experts, and errors of its models."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import Qwen3MoeConfig

from pando_worker.models.build import Build
from pando_worker.models.config import read_config
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.layers.experts.mixture import MixtureOfExperts, choose
from pando_worker.models.layers.experts.tensors import OneByOne
from pando_worker.models.loading.building import build_model
from pando_worker.models.mixture import sort_by_expert
from pando_worker.models.parallel import ParallelGroup
from tests.worker.model.checkpoints import Reference
from tests.worker.model.paged import CPU

HIDDEN, INTERMEDIATE, EXPERTS = 32, 16, 7
TENSORS = OneByOne(router="r", gate="{}.g", up="{}.u", down="{}.d")


def mixture(
    chosen: int, dtype: torch.dtype, *, normalised: bool, **options: Any
) -> MixtureOfExperts:
    moe = MixtureOfExperts(
        Build(dtype, CPU, ParallelGroup(), context_length=8),
        hidden_size=HIDDEN,
        intermediate_size=INTERMEDIATE,
        experts=EXPERTS,
        choice=partial(choose, chosen=chosen, normalised=normalised),
        tensors=TENSORS,
        **options,
    )
    torch.manual_seed(0)
    for name, parameter in list(moe.named_parameters()):
        weight = torch.randn(parameter.shape).mul_(0.3).to(dtype)
        setattr(moe, name, nn.Parameter(weight, requires_grad=False))
    return moe


def one_by_one(moe: MixtureOfExperts, x: Tensor, chosen: int, normalised: bool) -> Tensor:
    """The mixture in float32, token by token."""
    shares = torch.softmax(x.float() @ moe.router.float().T, dim=-1)
    rows = []
    for token, own in zip(x.float(), shares, strict=True):
        best = sorted(range(EXPERTS), key=lambda expert: -float(own[expert]))[:chosen]
        total = sum(float(own[expert]) for expert in best) if normalised else 1.0
        row = torch.zeros(HIDDEN)
        for expert in best:
            gate, up = (moe.gate_up[expert].float() @ token).chunk(2)
            out = moe.down[expert].float() @ (nn.functional.silu(gate) * up)
            row += out * float(own[expert]) / total
        rows.append(row)
    return torch.stack(rows)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("tokens", [1, 40])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)], ids=["f32", "bf16"]
)
def test_each_token_gets_the_weighted_sum_of_its_best_experts(
    normalised: bool, tokens: int, dtype: torch.dtype, tolerance: float
) -> None:
    moe = mixture(3, dtype, normalised=normalised)
    x = torch.randn(tokens, HIDDEN).to(dtype)
    expected = one_by_one(moe, x, 3, normalised)
    torch.testing.assert_close(moe(x).float(), expected, atol=tolerance, rtol=tolerance)


def test_experts_that_nobody_chooses_have_no_rows() -> None:
    routes = sort_by_expert(torch.tensor([[5, 1], [1, 4], [5, 1]]), experts=7)
    assert routes.ends.tolist() == [0, 3, 3, 3, 4, 6, 6]
    assert routes.experts.tolist() == [1, 1, 1, 4, 5, 5]
    assert routes.tokens.tolist() == [0, 1, 2, 1, 0, 2]


def test_weights_of_chosen_experts_add_up_to_one_or_are_shares_of_all() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]])
    shares = logits.softmax(-1)[0]
    weights, ids = choose(logits, 2, normalised=True)
    assert ids.tolist() == [[2, 1]]
    torch.testing.assert_close(weights, (shares[[2, 1]] / shares[1:].sum())[None])
    torch.testing.assert_close(choose(logits, 2, normalised=False)[0], shares[[2, 1]][None])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"moe_intermediate_size": 18}, "18 intermediate outputs of an expert cannot be split"),
        ({"moe_intermediate_size": 20}, "an expert's share of 5 elements .* not a multiple of 16"),
    ],
)
def test_experts_that_four_ranks_cannot_share_are_refused(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    Reference(tmp_path, config_type=Qwen3MoeConfig, head_dim=8, num_experts=2, **fields)
    with pytest.raises(UnsupportedModel, match=message):
        build_model(read_config(tmp_path), torch.float32, CPU, ParallelGroup(0, 4))


def test_a_rank_has_whole_experts_alone_and_their_memory(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"num_experts": 6, "moe_intermediate_size": 18 * 4}
    Reference(tmp_path, config_type=Qwen3MoeConfig, head_dim=8, **fields)
    config = read_config(tmp_path)
    whole, *_ = mixtures(build_model(config, torch.float32, CPU))
    for rank in range(2):
        model = build_model(
            config, torch.float32, CPU, ParallelGroup(rank, 2), expert_parallel=True
        )
        for moe in mixtures(model):
            assert moe.experts == range(3 * rank, 3 * rank + 3)
            assert moe.router.shape == whole.router.shape
            assert 2 * moe.gate_up.numel() == whole.gate_up.numel()
            assert 2 * moe.down.numel() == whole.down.numel()
    with pytest.raises(UnsupportedModel, match="6 experts cannot be split evenly among 4 ranks"):
        build_model(config, torch.float32, CPU, ParallelGroup(0, 4), expert_parallel=True)


def mixtures(model: torch.nn.Module) -> list[MixtureOfExperts]:
    return [part for part in model.modules() if isinstance(part, MixtureOfExperts)]
