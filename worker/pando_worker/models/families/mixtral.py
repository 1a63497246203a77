"""Mixtral (`MixtralForCausalLM`): Mistral's attention, a mixture of experts in each layer."""

from functools import partial

from pando_worker.models.build import Build
from pando_worker.models.families.decoder import DecoderConfig, pre_norm_decoder
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.experts.mixture import MixtureOfExperts, choose
from pando_worker.models.layers.experts.tensors import OneByOne
from pando_worker.models.rope import Count, Positive

TENSORS = OneByOne(
    router="block_sparse_moe.gate",
    gate="block_sparse_moe.experts.{}.w1",
    up="block_sparse_moe.experts.{}.w3",
    down="block_sparse_moe.experts.{}.w2",
)


class Config(DecoderConfig, frozen=True, kw_only=True):
    rms_norm_eps: Positive = 1e-5
    sliding_window: Count | None = None
    num_local_experts: Count = 8
    num_experts_per_tok: Count = 2


def build(config: Config, build: Build) -> CausalLM:
    def experts(build: Build, _: int) -> MixtureOfExperts:
        return MixtureOfExperts(
            build,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            experts=config.num_local_experts,
            choice=partial(choose, chosen=config.num_experts_per_tok, normalised=True),
            tensors=TENSORS,
        )

    return pre_norm_decoder(config, build, window=config.sliding_window, feed_forward=experts)
