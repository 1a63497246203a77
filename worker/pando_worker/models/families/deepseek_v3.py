"""DeepSeek-V3 and R1, Kimi K2 (`DeepseekV3ForCausalLM`): DeepSeek-V2 with experts chosen by their
sigmoids and a correction."""

from typing import Literal

from pando_worker.models.build import Build
from pando_worker.models.families.deepseek_v2 import LatentConfig, latent_decoder
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.experts.grouped import ExpertGroups
from pando_worker.models.rope import Count


class Config(LatentConfig, frozen=True, kw_only=True):
    topk_method: Literal["noaux_tc"] = "noaux_tc"
    scoring_func: Literal["sigmoid"] = "sigmoid"
    norm_topk_prob: bool = True
    routed_scaling_factor: float = 2.5
    n_group: Count = 8
    topk_group: Count = 4
    first_k_dense_replace: int = 3
    rope_interleave: bool = True
    num_nextn_predict_layers: int = 0


def build(config: Config, build: Build) -> CausalLM:
    groups = ExpertGroups(
        experts=config.n_routed_experts,
        groups=config.n_group,
        chosen_groups=config.topk_group,
        chosen=config.num_experts_per_tok,
        factor=config.routed_scaling_factor,
        scores="sigmoid",
        normalised=config.norm_topk_prob,
    )
    # Layers that predict further tokens (arXiv:2412.19437, section 2.2) follow the others.
    count = config.num_hidden_layers
    more = range(count, count + config.num_nextn_predict_layers)
    return latent_decoder(
        config,
        build,
        groups,
        interleaved=config.rope_interleave,
        unused=tuple(f"model.layers.{index}." for index in more),
    )
