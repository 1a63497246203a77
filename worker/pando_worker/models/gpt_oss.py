"""GPT-OSS (`GptOssForCausalLM`): attention sinks, windows in every other layer, experts with biases
and a clamped SwiGLU. Its mxfp4 files are decoded as they are read (see `quantization.py`).
"""

from functools import partial

import msgspec
import torch
from torch import Tensor

from pando_worker.models.build import Build
from pando_worker.models.layer_types import LayerType, alternating
from pando_worker.models.layers.attention import Attention
from pando_worker.models.layers.block import PreNormBlock
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.expert_tensors import StackedByInput
from pando_worker.models.layers.experts import MixtureOfExperts
from pando_worker.models.layers.norm import RMSNorm
from pando_worker.models.layers.rotary import RotaryEmbedding
from pando_worker.models.rope import Count, Positive, Rope

TENSORS = StackedByInput(
    router="mlp.router", gate_up="mlp.experts.gate_up_proj", down="mlp.experts.down_proj"
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
    num_local_experts: Count
    num_experts_per_tok: Count = 4
    sliding_window: Count = 128
    layer_types: tuple[LayerType, ...] | None = None
    swiglu_alpha: float = 1.702
    swiglu_limit: Positive = 7.0
    rms_norm_eps: Positive = 1e-5
    tie_word_embeddings: bool = False
    attention_bias: bool = True


def build(config: Config, build: Build) -> CausalLM:
    types = alternating(config.layer_types, config.num_hidden_layers, period=2)
    activation = partial(clamped_swiglu, alpha=config.swiglu_alpha, limit=config.swiglu_limit)

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
                window=config.sliding_window if types[index] == "sliding_attention" else None,
                bias=config.attention_bias,
                out_bias=config.attention_bias,
                sinks=True,
            ),
            post_attention_layernorm=RMSNorm(build, config.hidden_size, config.rms_norm_eps),
            mlp=MixtureOfExperts(
                build,
                hidden_size=config.hidden_size,
                intermediate_size=config.intermediate_size,
                experts=config.num_local_experts,
                chosen=config.num_experts_per_tok,
                normalised=True,
                tensors=TENSORS,
                bias=True,
                activation=activation,
            ),
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


def clamped_swiglu(gate_up: Tensor, *, alpha: float, limit: float) -> Tensor:
    """(up + 1) * gate * sigmoid(alpha * gate), gate at most and up within +-limit.

    Args:
        gate_up: [rows, 2 * intermediate], the two in turns
    """
    gate, up = gate_up[..., ::2].clamp(max=limit), gate_up[..., 1::2].clamp(-limit, limit)
    return torch.sigmoid(alpha * gate).mul_(gate).mul_(up + 1)
