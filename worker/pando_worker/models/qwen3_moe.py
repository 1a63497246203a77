"""Qwen3-MoE (`Qwen3MoeForCausalLM`): Qwen3's attention, experts in most layers."""

import msgspec
from torch import nn

from pando_worker.models.build import Build
from pando_worker.models.layers.attention import Attention
from pando_worker.models.layers.block import PreNormBlock
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.expert_tensors import OneByOne
from pando_worker.models.layers.experts import MixtureOfExperts
from pando_worker.models.layers.mlp import GatedMLP
from pando_worker.models.layers.norm import RMSNorm
from pando_worker.models.layers.rotary import RotaryEmbedding
from pando_worker.models.rope import Count, Positive, Rope

TENSORS = OneByOne(
    router="mlp.gate",
    gate="mlp.experts.{}.gate_proj",
    up="mlp.experts.{}.up_proj",
    down="mlp.experts.{}.down_proj",
)


class Config(msgspec.Struct, frozen=True, kw_only=True):
    vocab_size: Count
    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    head_dim: Count
    rope: Rope
    moe_intermediate_size: Count
    num_local_experts: Count
    num_experts_per_tok: Count
    norm_topk_prob: bool = False
    decoder_sparse_step: Count = 1
    mlp_only_layers: tuple[int, ...] = ()
    rms_norm_eps: Positive = 1e-6
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    use_sliding_window: bool = False
    sliding_window: Count = 4096

    def has_experts(self, layer: int) -> bool:
        return layer not in self.mlp_only_layers and (layer + 1) % self.decoder_sparse_step == 0


def build(config: Config, build: Build) -> CausalLM:
    def layer(index: int) -> PreNormBlock:
        return PreNormBlock(
            input_layernorm=RMSNorm(build, config.hidden_size, config.rms_norm_eps),
            self_attn=Attention(
                build,
                index,
                hidden_size=config.hidden_size,
                heads=config.num_attention_heads,
                kv_heads=config.num_key_value_heads,
                head_dim=config.head_dim,
                window=config.sliding_window if config.use_sliding_window else None,
                bias=config.attention_bias,
                out_bias=config.attention_bias,
                q_norm=RMSNorm(build, config.head_dim, config.rms_norm_eps),
                k_norm=RMSNorm(build, config.head_dim, config.rms_norm_eps),
            ),
            post_attention_layernorm=RMSNorm(build, config.hidden_size, config.rms_norm_eps),
            mlp=_feed_forward(config, build, index),
        )

    return CausalLM(
        build,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        layers=[layer(index) for index in range(config.num_hidden_layers)],
        norm=RMSNorm(build, config.hidden_size, config.rms_norm_eps),
        rotaries=[RotaryEmbedding(build, config.rope, config.head_dim)],
        tied=config.tie_word_embeddings,
    )


def _feed_forward(config: Config, build: Build, index: int) -> nn.Module:
    if not config.has_experts(index):
        return GatedMLP(build, config.hidden_size, config.intermediate_size)
    return MixtureOfExperts(
        build,
        hidden_size=config.hidden_size,
        intermediate_size=config.moe_intermediate_size,
        experts=config.num_local_experts,
        chosen=config.num_experts_per_tok,
        normalised=config.norm_topk_prob,
        tensors=TENSORS,
    )
