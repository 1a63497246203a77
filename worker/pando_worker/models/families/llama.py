"""Llama 2 and 3.x (`LlamaForCausalLM`), and the many models of the same shape."""

from pando_worker.models.build import Build
from pando_worker.models.families.decoder import DecoderConfig, pre_norm_decoder
from pando_worker.models.layers.causal_lm import CausalLM


class Config(DecoderConfig, frozen=True, kw_only=True):
    attention_bias: bool = False
    mlp_bias: bool = False


def build(config: Config, build: Build) -> CausalLM:
    bias = config.attention_bias
    return pre_norm_decoder(config, build, qkv_bias=bias, out_bias=bias, mlp_bias=config.mlp_bias)
