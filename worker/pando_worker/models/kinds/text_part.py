"""Models of text and images: finds the fields and tensors of their language model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pando_worker.models.errors import UnsupportedModel

T = TypeVar("T")


VideoTimes = Literal["order", "seconds", "text"]


@dataclass(frozen=True, slots=True)
class VideoForm:
    """How a model sees videos.

    Attributes:
        token: stands for a video in prompts, and for its embeddings
        times: how it knows when a frame was: from the frames' order, or from positions that count
            seconds, or from text in front of each
        per_second: positions that a second has, where they count seconds
    """

    token: int
    times: VideoTimes
    per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class _Whole:
    """An architecture with a vision part.

    Attributes:
        decoders: by their `model_type`, the architectures of its language models; the first is that
            of files that name none
        image_token: the token whose embeddings are an image's, unless its files have another
        whole_image_tokens: the field that says how many tokens an image has, in models in which
            these see each other, and its default
        video_times: `VideoForm.times`; None for a model that sees images alone
    """

    decoders: Mapping[str, str]
    image_token: int
    whole_image_tokens: tuple[str, int] | None = None
    video_times: VideoTimes | None = None


_QWEN_VIDEO_TOKEN = 151_656
_POSITIONS_PER_SECOND = 4  # of Qwen2.5-VL, unless its files have another number

_LLAMA = {"llama": "LlamaForCausalLM"}
_MISTRAL = {"mistral": "MistralForCausalLM"}
_QWEN = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}

_WHOLES = {
    "Gemma3ForConditionalGeneration": _Whole(
        decoders={"gemma3_text": "Gemma3ForConditionalGeneration"},
        image_token=262_144,
        whole_image_tokens=("mm_tokens_per_image", 256),
    ),
    "Idefics3ForConditionalGeneration": _Whole(decoders=_LLAMA, image_token=128_257),
    "InternVLForConditionalGeneration": _Whole(decoders=_QWEN | _LLAMA, image_token=151_667),
    "LlavaForConditionalGeneration": _Whole(decoders=_LLAMA | _MISTRAL | _QWEN, image_token=32_000),
    "LlavaNextForConditionalGeneration": _Whole(
        decoders=_LLAMA | _MISTRAL | _QWEN, image_token=32_000
    ),
    "LlavaOnevisionForConditionalGeneration": _Whole(decoders=_QWEN, image_token=151_646),
    "Mistral3ForConditionalGeneration": _Whole(decoders=_MISTRAL, image_token=10),
    "Qwen2VLForConditionalGeneration": _Whole(
        decoders={"qwen2_vl_text": "Qwen2ForCausalLM"},
        image_token=151_655,
        video_times="order",
    ),
    "Qwen2_5_VLForConditionalGeneration": _Whole(
        decoders={"qwen2_5_vl_text": "Qwen2ForCausalLM"},
        image_token=151_655,
        video_times="seconds",
    ),
    "Qwen3VLForConditionalGeneration": _Whole(
        decoders={"qwen3_vl_text": "Qwen3ForCausalLM"},
        image_token=151_655,
        video_times="text",
    ),
    "Qwen3VLMoeForConditionalGeneration": _Whole(
        decoders={"qwen3_vl_moe_text": "Qwen3VLMoeForConditionalGeneration"},
        image_token=151_655,
        video_times="text",
    ),
}

WITH_IMAGES = tuple(_WHOLES)
"""The architectures with a vision part that are served."""

_QWEN2_VL = {
    "vocab_size": 152_064,
    "hidden_size": 8192,
    "intermediate_size": 29_568,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32_768,
    "max_window_layers": 80,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1_000_000.0,
    "mrope_section": (16, 24, 24),
}

_QWEN3_VL_POSITIONS = {
    "max_position_embeddings": 128_000,
    "rope_theta": 500_000.0,
    "mrope_section": (24, 20, 20),
    "mrope_interleaved": True,
}

# By `model_type`, the fields that files leave out, with what transformers takes for them.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        "vocab_size": 262_208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "rope_theta": 1_000_000.0,
    },
    "llama": {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
        "rope_theta": 10_000.0,
    },
    "mistral": {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "rope_theta": 10_000.0,
    },
    "qwen2": {
        "vocab_size": 151_936,
        "hidden_size": 4096,
        "intermediate_size": 22_016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32_768,
        "rope_theta": 10_000.0,
    },
    "qwen2_vl_text": _QWEN2_VL,
    "qwen2_5_vl_text": _QWEN2_VL,
    "qwen3": {
        "vocab_size": 151_936,
        "hidden_size": 4096,
        "intermediate_size": 22_016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "max_position_embeddings": 32_768,
        "rope_theta": 10_000.0,
    },
    "qwen3_vl_text": {
        "vocab_size": 151_936,
        "hidden_size": 4096,
        "intermediate_size": 22_016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
        **_QWEN3_VL_POSITIONS,
    },
    "qwen3_vl_moe_text": {
        "vocab_size": 151_936,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "moe_intermediate_size": 1408,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        **_QWEN3_VL_POSITIONS,
    },
}

_TIED_BY_TEXT = "LlavaOnevisionForConditionalGeneration"
_PREFIXES = ("language_model.model.", "model.language_model.", "model.text_model.")
_OTHER_PARTS = (
    "image_newline",
    "model.connector.",
    "model.image_newline",
    "model.vision_model.",
    "visual.",
    "model.visual.",
    "vision_tower.",
    "multi_modal_projector.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
)


def text_fields(raw: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `config.json`'s language model; all fields if it has no other parts.

    Raises:
        UnsupportedModel: the language model is of a kind that is not served as a part.
    """
    for architecture in raw.get("architectures") or []:
        if (whole := _WHOLES.get(architecture)) is None:
            continue
        # The first files of Qwen have the language model's fields among the others.
        text = {
            key: value for key, value in raw.get("text_config", {}).items() if value is not None
        }
        kind = text.setdefault("model_type", next(iter(whole.decoders)))
        if kind not in whole.decoders:
            raise UnsupportedModel(
                f"{architecture} with a language model of type {kind!r} is not supported; with"
                f" {', '.join(whole.decoders)} it is"
            )
        fields = {**_DEFAULTS[kind], **raw, **text, "architectures": [whole.decoders[kind]]}
        # Whether head and embedding are one tensor, the whole model decides, except in one family.
        if (tied := raw.get("tie_word_embeddings")) is not None:
            by_text = architecture == _TIED_BY_TEXT and text.get("tie_word_embeddings", False)
            fields["tie_word_embeddings"] = tied or by_text
        return fields
    return raw


def image_token(raw: dict[str, Any]) -> int | None:
    """The token whose embeddings are an image's; None for a model that reads text only."""
    for architecture in raw.get("architectures") or []:
        if whole := _WHOLES.get(architecture):
            return int(raw.get("image_token_index", raw.get("image_token_id", whole.image_token)))
    return None


def video_form(raw: dict[str, Any]) -> VideoForm | None:
    """None for a model that sees no videos."""
    for architecture in raw.get("architectures") or []:
        if (whole := _WHOLES.get(architecture)) and whole.video_times:
            vision = raw.get("vision_config") or {}
            return VideoForm(
                token=int(raw.get("video_token_id", _QWEN_VIDEO_TOKEN)),
                times=whole.video_times,
                per_second=float(vision.get("tokens_per_second", _POSITIONS_PER_SECOND)),
            )
    return None


def whole_image_tokens(raw: dict[str, Any]) -> int:
    """How many tokens an image has, if these see each other; 0 if attention is causal."""
    for architecture in raw.get("architectures") or []:
        if (whole := _WHOLES.get(architecture)) and whole.whole_image_tokens:
            name, default = whole.whole_image_tokens
            return int(raw.get(name, default))
    return 0


def text_tensors(tensors: Mapping[str, T]) -> dict[str, T]:
    """The language model's tensors, with the names that they have in a text-only checkpoint."""
    return {
        _alone(name): tensor
        for name, tensor in tensors.items()
        if not name.startswith(_OTHER_PARTS)
    }


def _alone(name: str) -> str:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return f"model.{name.removeprefix(prefix)}"
    return name.removeprefix("language_model.")
