"""Qwen3-MoE (`Qwen3MoeForCausalLM`): Qwen3's attention, experts in most layers."""

from functools import partial

from torch import nn

from pando_worker.models.build import Build
from pando_worker.models.families.decoder import DecoderConfig, pre_norm_decoder
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.experts.mixture import ExpertTensors, MixtureOfExperts, choose
from pando_worker.models.layers.experts.tensors import OneByOne
from pando_worker.models.layers.mlp import GatedMLP
from pando_worker.models.rope import Count

TENSORS = OneByOne(
    router="mlp.gate",
    gate="mlp.experts.{}.gate_proj",
    up="mlp.experts.{}.up_proj",
    down="mlp.experts.{}.down_proj",
)


class Config(DecoderConfig, frozen=True, kw_only=True):
    moe_intermediate_size: Count
    num_local_experts: Count
    num_experts_per_tok: Count
    norm_topk_prob: bool = False
    decoder_sparse_step: Count = 1
    mlp_only_layers: tuple[int, ...] = ()
    attention_bias: bool = False
    use_sliding_window: bool = False
    sliding_window: Count = 4096

    def has_experts(self, layer: int) -> bool:
        return layer not in self.mlp_only_layers and (layer + 1) % self.decoder_sparse_step == 0


def build(config: Config, build: Build) -> CausalLM:
    return qwen3_moe_decoder(config, build, TENSORS)


def qwen3_moe_decoder(config: Config, build: Build, tensors: ExpertTensors) -> CausalLM:
    """
    Args:
        tensors: the form of experts in the checkpoint
    """

    def feed_forward(build: Build, index: int) -> nn.Module:
        if not config.has_experts(index):
            return GatedMLP(build, config.hidden_size, config.intermediate_size)
        return MixtureOfExperts(
            build,
            hidden_size=config.hidden_size,
            intermediate_size=config.moe_intermediate_size,
            experts=config.num_local_experts,
            choice=partial(
                choose, chosen=config.num_experts_per_tok, normalised=config.norm_topk_prob
            ),
            tensors=tensors,
        )

    return pre_norm_decoder(
        config,
        build,
        qkv_bias=config.attention_bias,
        out_bias=config.attention_bias,
        head_norms=True,
        window=config.sliding_window if config.use_sliding_window else None,
        feed_forward=feed_forward,
    )
