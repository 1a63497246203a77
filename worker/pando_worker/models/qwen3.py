"""Qwen3 (`Qwen3ForCausalLM`): Llama's layers with queries and keys normalised, head by head."""

import msgspec

from pando_worker.models.build import Build
from pando_worker.models.layer_types import LayerType, layer_types
from pando_worker.models.layers.attention import Attention
from pando_worker.models.layers.block import PreNormBlock
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.mlp import GatedMLP
from pando_worker.models.layers.norm import RMSNorm
from pando_worker.models.layers.rotary import RotaryEmbedding
from pando_worker.models.rope import Count, Positive, Rope


class Config(msgspec.Struct, frozen=True, kw_only=True):
    vocab_size: Count
    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    head_dim: Count
    rope: Rope
    rms_norm_eps: Positive = 1e-6
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    use_sliding_window: bool = False
    sliding_window: Count = 4096
    max_window_layers: int = 28
    layer_types: tuple[LayerType, ...] | None = None


def build(config: Config, build: Build) -> CausalLM:
    types = layer_types(config.layer_types, config.num_hidden_layers, config.max_window_layers)

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
                window=(
                    config.sliding_window
                    if config.use_sliding_window and types[index] == "sliding_attention"
                    else None
                ),
                bias=config.attention_bias,
                out_bias=config.attention_bias,
                q_norm=RMSNorm(build, config.head_dim, config.rms_norm_eps),
                k_norm=RMSNorm(build, config.head_dim, config.rms_norm_eps),
            ),
            post_attention_layernorm=RMSNorm(build, config.hidden_size, config.rms_norm_eps),
            mlp=GatedMLP(build, config.hidden_size, config.intermediate_size),
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
