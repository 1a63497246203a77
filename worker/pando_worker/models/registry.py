"""Finds the file with the code for the `architectures` of a `config.json`.

The file is imported only when a model is built, so the HTTP process, which only checks whether
there is one, needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from pando_worker.models.kinds.text_encoder import TEXT_ENCODERS

if TYPE_CHECKING:
    from pando_worker.models.build import Build
    from pando_worker.models.layers.causal_lm import CausalLM
    from pando_worker.models.layers.seq2seq import EncoderDecoder
    from pando_worker.models.layers.text_encoder import TextEncoder

FAMILIES = {
    "BartForConditionalGeneration": "bart",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Gemma3ForConditionalGeneration": "gemma3",
    "GptOssForCausalLM": "gpt_oss",
    "LlamaForCausalLM": "llama",
    "MBartForConditionalGeneration": "bart",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Olmo2ForCausalLM": "olmo2",
    "Phi3ForCausalLM": "phi3",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Qwen3VLMoeForConditionalGeneration": "qwen3_vl_moe",
    "T5ForConditionalGeneration": "t5",
    "WhisperForConditionalGeneration": "whisper",
    **TEXT_ENCODERS,
}


class Family(Protocol):
    """A module of `families`: one family of models."""

    Config: type[msgspec.Struct]
    """A msgspec Struct with the fields that it reads, named as in the file; of one with rotary
    positions also `rope: Rope`."""

    def build(self, config: Any, build: "Build") -> "CausalLM | EncoderDecoder | TextEncoder":
        """The model of a `Config`, its parameters on "meta"."""
        ...


def family(architecture: str) -> Family:
    return cast(Family, import_module(f"pando_worker.models.families.{FAMILIES[architecture]}"))
