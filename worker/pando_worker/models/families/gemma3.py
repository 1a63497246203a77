"""Gemma 3 (`Gemma3ForCausalLM`, and the text model of `Gemma3ForConditionalGeneration`): Gemma 2's
layers with normalised queries and keys; most have a window and their own rotary positions.
"""

from pando_worker.models.build import Build
from pando_worker.models.families.gemma2 import GemmaConfig, gemma_decoder
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.rope import Count, Rope


class Config(GemmaConfig, frozen=True, kw_only=True):
    sliding_rope: Rope  # of layers with a window; the others use `rope`
    sliding_window_pattern: Count = 6


def build(config: Config, build: Build) -> CausalLM:
    return gemma_decoder(
        config,
        build,
        period=config.sliding_window_pattern,
        head_norms=True,
        sliding_rope=config.sliding_rope,
    )
