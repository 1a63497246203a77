"""Models of text and images: finds the fields and tensors of their language model.

Only text is served.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")

# Fields that a model's files omit, with transformers' defaults.
DEFAULTS: dict[str, dict[str, Any]] = {
    "Gemma3ForConditionalGeneration": {
        "vocab_size": 262_208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "rope_theta": 1_000_000.0,
    }
}

_PREFIXES = ("language_model.model.", "model.language_model.")
_OTHER_PARTS = (
    "vision_tower.",
    "multi_modal_projector.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
)


def text_fields(raw: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `config.json`'s language model; all fields if it has no other parts."""
    for architecture in raw.get("architectures") or []:
        if architecture in DEFAULTS:
            text = {key: value for key, value in raw["text_config"].items() if value is not None}
            return DEFAULTS[architecture] | raw | text | {"architectures": [architecture]}
    return raw


def text_tensors(architecture: str, tensors: Mapping[str, T]) -> dict[str, T]:
    """The language model's tensors, with the names that they have in a text-only checkpoint."""
    if architecture not in DEFAULTS:
        return dict(tensors)
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
