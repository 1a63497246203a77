"""Phi-3, Phi-3.5 and Phi-4 (`Phi3ForCausalLM`): Llama's layers with partial rotary positions and
LongRoPE. The checkpoint's projections are already fused."""

from pando_worker.models.build import Build
from pando_worker.models.families.decoder import DecoderConfig, pre_norm_decoder
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.rope import Count, DefaultRope, LongRope, Positive, Share


class Config(DecoderConfig, frozen=True, kw_only=True):
    rope: DefaultRope | LongRope
    partial_rotary_factor: Share = 1.0
    rms_norm_eps: Positive = 1e-5
    sliding_window: Count | None = None


def build(config: Config, build: Build) -> CausalLM:
    return pre_norm_decoder(
        config,
        build,
        window=config.sliding_window,
        fused=True,
        rotary_dim=int(config.head_dim * config.partial_rotary_factor),
    )
