"""Gemma 2 (`Gemma2ForCausalLM`): soft caps, windows in every other layer, norms on both sides."""

from typing import Literal

from pando_worker.models.build import Build
from pando_worker.models.families.decoder import DecoderConfig
from pando_worker.models.layer_types import LayerType, alternating
from pando_worker.models.layers.attention.multi_head import Attention
from pando_worker.models.layers.attention.rotary import RotaryEmbedding
from pando_worker.models.layers.block import SandwichNormBlock
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.mlp import GatedMLP
from pando_worker.models.layers.norms.rms import RMSNorm
from pando_worker.models.rope import Count, Positive, Rope


class GemmaConfig(DecoderConfig, frozen=True, kw_only=True):
    """Fields that both Gemmas read. Defaults are transformers': some files omit these fields."""

    query_pre_attn_scalar: Positive = 256
    sliding_window: Count = 4096
    layer_types: tuple[LayerType, ...] | None = None
    final_logit_softcapping: Positive | None = None
    tie_word_embeddings: bool = True
    attention_bias: bool = False
    hidden_activation: Literal["gelu_pytorch_tanh"] = "gelu_pytorch_tanh"
    use_bidirectional_attention: Literal[False] = False


class Config(GemmaConfig, frozen=True, kw_only=True):
    attn_logit_softcapping: Positive | None = None
    hidden_act: Literal["gelu_pytorch_tanh"] = "gelu_pytorch_tanh"


def build(config: Config, build: Build) -> CausalLM:
    return gemma_decoder(config, build, period=2, soft_cap=config.attn_logit_softcapping)


def gemma_decoder(
    config: GemmaConfig,
    build: Build,
    *,
    period: int,
    soft_cap: float | None = None,
    head_norms: bool = False,
    sliding_rope: Rope | None = None,
) -> CausalLM:
    """
    Args:
        period: as in `alternating`
        soft_cap: of the attention's scores
        head_norms: whether queries and keys are normalised per head
        sliding_rope: of layers with a window; by default that of the other layers
    """
    types = alternating(config.layer_types, config.num_hidden_layers, period)
    ropes = [config.rope] if sliding_rope is None else [config.rope, sliding_rope]

    def norm(size: int = config.hidden_size) -> RMSNorm:
        return RMSNorm(build, size, config.rms_norm_eps, offset=True)

    def layer(index: int) -> SandwichNormBlock:
        is_sliding = types[index] == "sliding_attention"
        return SandwichNormBlock(
            input_layernorm=norm(),
            self_attn=Attention(
                build,
                index,
                hidden_size=config.hidden_size,
                heads=config.num_attention_heads,
                kv_heads=config.num_key_value_heads,
                head_dim=config.head_dim,
                scale=config.query_pre_attn_scalar**-0.5,
                window=config.sliding_window if is_sliding else None,
                bias=config.attention_bias,
                out_bias=config.attention_bias,
                q_norm=norm(config.head_dim) if head_norms else None,
                k_norm=norm(config.head_dim) if head_norms else None,
                rope=len(ropes) - 1 if is_sliding else 0,
                soft_cap=soft_cap,
            ),
            post_attention_layernorm=norm(),
            pre_feedforward_layernorm=norm(),
            mlp=GatedMLP(build, config.hidden_size, config.intermediate_size, gelu=True),
            post_feedforward_layernorm=norm(),
        )

    return CausalLM(
        build,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        layers=[layer(index) for index in range(config.num_hidden_layers)],
        norm=norm(),
        rotaries=[RotaryEmbedding(build, rope, config.head_dim) for rope in ropes],
        tied=config.tie_word_embeddings,
        embedding_scale=config.hidden_size**0.5,
        logit_soft_cap=config.final_logit_softcapping,
    )
