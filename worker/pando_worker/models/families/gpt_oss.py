"""GPT-OSS (`GptOssForCausalLM`): attention sinks, windows in every other layer, experts with biases
and a clamped SwiGLU. Its mxfp4 files are decoded while they are read, or on a GPU while it
multiplies (see `quantization.py`).
"""

from functools import partial

from pando_worker.models.build import Build
from pando_worker.models.families.decoder import DecoderConfig, pre_norm_decoder
from pando_worker.models.layer_types import LayerType, alternating
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.experts.mixture import MixtureOfExperts, choose
from pando_worker.models.layers.experts.tensors import StackedByInput
from pando_worker.models.mixture import ExpertGate
from pando_worker.models.rope import Count, Positive

TENSORS = StackedByInput(
    router="mlp.router",
    gate_up="mlp.experts.gate_up_proj",
    down="mlp.experts.down_proj",
    interleaved=True,
)


class Config(DecoderConfig, frozen=True, kw_only=True):
    num_local_experts: Count
    num_experts_per_tok: Count = 4
    sliding_window: Count = 128
    layer_types: tuple[LayerType, ...] | None = None
    swiglu_alpha: float = 1.702
    swiglu_limit: Positive = 7.0
    rms_norm_eps: Positive = 1e-5
    attention_bias: bool = True


def build(config: Config, build: Build) -> CausalLM:
    gate = ExpertGate(config.swiglu_alpha, 1.0, config.swiglu_limit, interleaved=True)

    def experts(build: Build, _: int) -> MixtureOfExperts:
        return MixtureOfExperts(
            build,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            experts=config.num_local_experts,
            choice=partial(choose, chosen=config.num_experts_per_tok, normalised=True),
            tensors=TENSORS,
            bias=True,
            gate=gate,
        )

    return pre_norm_decoder(
        config,
        build,
        qkv_bias=config.attention_bias,
        out_bias=config.attention_bias,
        window=config.sliding_window,
        types=alternating(config.layer_types, config.num_hidden_layers, period=2),
        sinks=True,
        feed_forward=experts,
    )
