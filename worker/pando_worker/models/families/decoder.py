"""The decoder that most families share: Llama's layers; a family's differences are arguments."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec
from torch import nn

from pando_worker.models.build import Build
from pando_worker.models.layer_types import LayerType
from pando_worker.models.layers.attention.multi_head import Attention
from pando_worker.models.layers.attention.rotary import RotaryEmbedding
from pando_worker.models.layers.block import PreNormBlock
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.mlp import GatedMLP
from pando_worker.models.layers.norms.rms import RMSNorm
from pando_worker.models.rope import Count, MRope, Positive, Rope


class DecoderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of `config.json` that every family reads; a family's `Config` adds its own."""

    vocab_size: Count
    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    head_dim: Count
    rope: Rope
    mrope: MRope | None = None
    rms_norm_eps: Positive = 1e-6
    tie_word_embeddings: bool = False


def pre_norm_decoder(
    config: DecoderConfig,
    build: Build,
    *,
    qkv_bias: bool = False,
    out_bias: bool = False,
    mlp_bias: bool = False,
    head_norms: bool = False,
    window: int | None = None,
    types: Sequence[LayerType] | None = None,
    sinks: bool = False,
    fused: bool = False,
    rotary_dim: int | None = None,
    feed_forward: Callable[[Build, int], nn.Module] | None = None,
) -> CausalLM:
    """
    Args:
        qkv_bias, out_bias: whether the attention's input and output projections have biases
        head_norms: whether queries and keys are normalised per head
        window: tokens that a token sees, including itself; all by default
        types: each layer's type, which says whether it has the window; by default all have it
        sinks: as in `Attention`
        fused: whether the checkpoint has the projections as `qkv_proj` and `gate_up_proj`
        rotary_dim: rotated dimensions of each head; all by default
        feed_forward: makes a layer's feed-forward, which by default is a `GatedMLP`, from its
            context and index
    """
    build = replace(build, sums_in_norms=True)

    def norm(size: int) -> RMSNorm:
        return RMSNorm(build, size, config.rms_norm_eps)

    def gated_mlp(build: Build, index: int) -> nn.Module:
        sizes = (config.hidden_size, config.intermediate_size)
        return GatedMLP(build, *sizes, bias=mlp_bias, fused=fused)

    def layer(index: int) -> PreNormBlock:
        attention = Attention(
            build,
            index,
            hidden_size=config.hidden_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            window=window if types is None or types[index] == "sliding_attention" else None,
            bias=qkv_bias,
            out_bias=out_bias,
            fused=fused,
            q_norm=norm(config.head_dim) if head_norms else None,
            k_norm=norm(config.head_dim) if head_norms else None,
            sinks=sinks,
        )
        return PreNormBlock(
            input_layernorm=norm(config.hidden_size),
            self_attn=attention,
            post_attention_layernorm=norm(config.hidden_size),
            mlp=(feed_forward or gated_mlp)(build, index),
        )

    return CausalLM(
        build,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        layers=[layer(index) for index in range(config.num_hidden_layers)],
        norm=norm(config.hidden_size),
        rotaries=[RotaryEmbedding(build, config.rope, rotary_dim or config.head_dim, config.mrope)],
        tied=config.tie_word_embeddings,
    )
