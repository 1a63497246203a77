"""Mistral (`MistralForCausalLM`): Llama's layers; older models have a sliding window."""

from pando_worker.models.build import Build
from pando_worker.models.families.decoder import DecoderConfig, pre_norm_decoder
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.rope import Count


class Config(DecoderConfig, frozen=True, kw_only=True):
    sliding_window: Count | None = None


def build(config: Config, build: Build) -> CausalLM:
    return pre_norm_decoder(config, build, window=config.sliding_window)
