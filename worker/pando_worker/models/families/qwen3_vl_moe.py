"""The text model of Qwen3-VL with experts (`Qwen3VLMoeForConditionalGeneration`): Qwen3-MoE's, with
experts that are stacked in the checkpoint."""

from pando_worker.models.build import Build
from pando_worker.models.families import qwen3_moe
from pando_worker.models.families.qwen3_moe import qwen3_moe_decoder
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.experts.tensors import StackedByInput

TENSORS = StackedByInput(
    router="mlp.gate",
    gate_up="mlp.experts.gate_up_proj",
    down="mlp.experts.down_proj",
    interleaved=False,
)


class Config(qwen3_moe.Config, frozen=True, kw_only=True):
    norm_topk_prob: bool = True


def build(config: Config, build: Build) -> CausalLM:
    return qwen3_moe_decoder(config, build, TENSORS)
