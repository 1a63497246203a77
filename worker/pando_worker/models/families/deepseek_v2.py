"""DeepSeek-V2 (`DeepseekV2ForCausalLM`): latent attention, experts chosen by groups in most layers,
beside experts that every token has."""

import math
from dataclasses import replace
from functools import partial
from typing import Literal

from torch import nn

from pando_worker.models.build import Build
from pando_worker.models.families.decoder import DecoderConfig
from pando_worker.models.layers.attention.latent import LatentAttention, LatentForm
from pando_worker.models.layers.attention.rotary import RotaryEmbedding
from pando_worker.models.layers.block import PreNormBlock
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.experts.grouped import (
    ExpertGroups,
    GroupedChoice,
    SharedAndRouted,
)
from pando_worker.models.layers.experts.mixture import MixtureOfExperts
from pando_worker.models.layers.experts.tensors import OneByOne
from pando_worker.models.layers.mlp import GatedMLP
from pando_worker.models.layers.norms.rms import RMSNorm
from pando_worker.models.rope import Count, DefaultRope, LinearRope, YarnRope

TENSORS = OneByOne(  # relative to the mixture
    router="gate",
    gate="experts.{}.gate_proj",
    up="experts.{}.up_proj",
    down="experts.{}.down_proj",
    module="experts",
    router_module="gate",
)


class LatentConfig(DecoderConfig, frozen=True, kw_only=True):
    """The fields that both versions have. LongRoPE is not among their scalings."""

    rope: DefaultRope | LinearRope | YarnRope
    q_lora_rank: Count | None = None
    kv_lora_rank: Count = 512
    qk_nope_head_dim: Count = 128
    qk_rope_head_dim: Count = 64
    v_head_dim: Count = 128
    attention_bias: Literal[False] = False
    moe_intermediate_size: Count
    moe_layer_freq: Literal[1] = 1
    n_routed_experts: Count
    n_shared_experts: Count
    num_experts_per_tok: Count
    first_k_dense_replace: int = 0
    routed_scaling_factor: float = 1.0
    n_group: Count = 1
    topk_group: Count = 1


class Config(LatentConfig, frozen=True, kw_only=True):
    topk_method: Literal["greedy", "group_limited_greedy"] = "greedy"
    scoring_func: Literal["softmax"] = "softmax"
    norm_topk_prob: Literal[False] = False


def build(config: Config, build: Build) -> CausalLM:
    by_groups = config.topk_method == "group_limited_greedy"
    groups = ExpertGroups(
        experts=config.n_routed_experts,
        groups=config.n_group if by_groups else 1,
        chosen_groups=config.topk_group if by_groups else 1,
        chosen=config.num_experts_per_tok,
        factor=config.routed_scaling_factor,
        scores="softmax",
        normalised=False,
    )
    return latent_decoder(config, build, groups, interleaved=True)


def latent_decoder(
    config: LatentConfig,
    build: Build,
    groups: ExpertGroups,
    *,
    interleaved: bool,
    unused: tuple[str, ...] = (),
) -> CausalLM:
    """
    Args:
        interleaved: as in `LatentForm`
        unused: as in `CausalLM`
    """
    build = replace(build, sums_in_norms=True)
    norm = partial(RMSNorm, build, config.hidden_size, config.rms_norm_eps)
    form = LatentForm(
        heads=config.num_attention_heads,
        q_latent=config.q_lora_rank,
        latent=config.kv_lora_rank,
        plain_dim=config.qk_nope_head_dim,
        rotary_dim=config.qk_rope_head_dim,
        v_head_dim=config.v_head_dim,
        scale=_scale(config),
        interleaved=interleaved,
    )

    def feed_forward(index: int) -> nn.Module:
        if index < config.first_k_dense_replace:
            return GatedMLP(build, config.hidden_size, config.intermediate_size)
        gate = GroupedChoice(groups)
        routed = MixtureOfExperts(
            build,
            hidden_size=config.hidden_size,
            intermediate_size=config.moe_intermediate_size,
            experts=config.n_routed_experts,
            choice=gate.choose,
            exact_router=True,
            tensors=TENSORS,
        )
        width = config.moe_intermediate_size * config.n_shared_experts
        return SharedAndRouted(gate, routed, GatedMLP(build, config.hidden_size, width))

    return CausalLM(
        build,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        layers=[
            PreNormBlock(
                input_layernorm=norm(),
                self_attn=LatentAttention(build, index, config.hidden_size, form),
                post_attention_layernorm=norm(),
                mlp=feed_forward(index),
            )
            for index in range(config.num_hidden_layers)
        ],
        norm=norm(),
        rotaries=[RotaryEmbedding(build, config.rope, config.qk_rope_head_dim)],
        tied=config.tie_word_embeddings,
        unused=unused,
    )


def _scale(config: LatentConfig) -> float:
    """Of scores; YaRN's temperature is in it where `mscale_all_dim` is given."""
    scale = float((config.qk_nope_head_dim + config.qk_rope_head_dim) ** -0.5)
    rope = config.rope
    if isinstance(rope, YarnRope) and rope.mscale_all_dim and rope.factor > 1:
        scale *= (0.1 * rope.mscale_all_dim * math.log(rope.factor) + 1.0) ** 2
    return scale
