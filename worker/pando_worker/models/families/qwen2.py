"""Qwen2 and Qwen2.5 (`Qwen2ForCausalLM`): Llama's layers with biases on queries, keys, values."""

from pando_worker.models.build import Build
from pando_worker.models.families.decoder import DecoderConfig, pre_norm_decoder
from pando_worker.models.layer_types import LayerType, layer_types
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.rope import Count


class Config(DecoderConfig, frozen=True, kw_only=True):
    use_sliding_window: bool = False
    sliding_window: Count = 4096
    max_window_layers: int = 28
    layer_types: tuple[LayerType, ...] | None = None


def build(config: Config, build: Build) -> CausalLM:
    return pre_norm_decoder(
        config,
        build,
        qkv_bias=True,
        window=config.sliding_window if config.use_sliding_window else None,
        types=layer_types(config.layer_types, config.num_hidden_layers, config.max_window_layers),
    )
