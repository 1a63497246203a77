"""A model's `config.json` as a typed `ModelConfig`, without importing transformers (seconds).

Field names are the file's own. Both spellings of rotary parameters are read: `rope_theta` with
`rope_scaling`, and the `rope_parameters` of transformers 5.
"""

from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta

from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel

ARCHITECTURES = ("LlamaForCausalLM",)

Count = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0)]


class DefaultRope(msgspec.Struct, frozen=True, tag_field="rope_type", tag="default"):
    rope_theta: Positive


class LinearRope(msgspec.Struct, frozen=True, tag_field="rope_type", tag="linear"):
    rope_theta: Positive
    factor: Positive


class Llama3Rope(msgspec.Struct, frozen=True, tag_field="rope_type", tag="llama3"):
    rope_theta: Positive
    factor: Positive
    low_freq_factor: Positive
    high_freq_factor: Positive
    original_max_position_embeddings: Count


class YarnRope(msgspec.Struct, frozen=True, tag_field="rope_type", tag="yarn"):
    rope_theta: Positive
    factor: Positive
    original_max_position_embeddings: Count
    attention_factor: Positive | None = None
    beta_fast: Positive = 32.0
    beta_slow: Positive = 1.0
    mscale: float = 0.0
    mscale_all_dim: float = 0.0
    truncate: bool = True


Rope = DefaultRope | LinearRope | Llama3Rope | YarnRope


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of a Llama; the defaults are those of the field's config files."""

    vocab_size: Count
    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    head_dim: Count
    rope: Rope
    max_position_embeddings: Count = 2048
    rms_norm_eps: Positive = 1e-6
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False


class _Given(msgspec.Struct):
    """The fields that others are derived from, and that decide whether the model is supported."""

    architectures: list[str] = []
    hidden_act: str = "silu"
    partial_rotary_factor: float = 1.0
    quantization_config: Any = None
    rope_parameters: dict[str, Any] = {}
    rope_scaling: dict[str, Any] = {}
    hidden_size: Count = 1
    num_attention_heads: Count = 1


def read_config(model_dir: Path) -> ModelConfig:
    """Read `config.json` of a model directory.

    Raises:
        UnsupportedModel: another architecture, or a feature that Llama's file here lacks.
        BrokenCheckpoint: no or malformed `config.json`.
    """
    path = model_dir / "config.json"
    try:
        raw = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        raw = {key: value for key, value in raw.items() if value is not None}
        given = msgspec.convert(raw, _Given)
        raw["rope"] = _rope(raw, given)
        raw.setdefault("num_key_value_heads", given.num_attention_heads)
        raw.setdefault("head_dim", given.hidden_size // given.num_attention_heads)
        if reason := _unsupported(given, raw["rope"]):
            raise UnsupportedModel(f"{path} has {reason}")
        config = msgspec.convert(raw, ModelConfig)
    except msgspec.ValidationError as error:
        raise BrokenCheckpoint(f"{path}: {error}") from error
    except (OSError, msgspec.DecodeError) as error:
        raise BrokenCheckpoint(f"cannot read {path}: {error}") from error
    if config.num_attention_heads % config.num_key_value_heads:
        raise BrokenCheckpoint(
            f"{path}: num_attention_heads ({config.num_attention_heads}) is not a multiple of"
            f" num_key_value_heads ({config.num_key_value_heads})"
        )
    if config.head_dim % 2:
        raise BrokenCheckpoint(f"{path}: head_dim ({config.head_dim}) is odd")
    return config


def _unsupported(given: _Given, rope: dict[str, Any]) -> str | None:
    """What the model has that this worker has no code for, and what it could have instead."""
    if not set(given.architectures) & set(ARCHITECTURES):
        return f"architectures {given.architectures}; supported: {', '.join(ARCHITECTURES)}"
    if given.hidden_act != "silu":
        return f"hidden_act {given.hidden_act!r}; supported: silu"
    if (share := rope.get("partial_rotary_factor", given.partial_rotary_factor)) != 1:
        return f"partial_rotary_factor {share}; supported: 1"
    if given.quantization_config is not None:
        return f"quantization_config {given.quantization_config}; supported: no quantization"
    kinds = [str(rope.__struct_config__.tag) for rope in get_args(Rope)]
    if rope["rope_type"] not in kinds:
        return f"rope type {rope['rope_type']!r}; supported: {', '.join(kinds)}"
    return None


def _rope(raw: dict[str, Any], given: _Given) -> dict[str, Any]:
    """Rotary parameters in one form, whichever of the two the file uses."""
    rope = given.rope_scaling or given.rope_parameters
    rope = {key: value for key, value in rope.items() if value is not None}
    defaults = {
        "rope_type": rope.get("type", "default"),
        "rope_theta": raw.get("rope_theta", 10_000.0),
        "original_max_position_embeddings": raw.get("max_position_embeddings", 2048),
    }
    return defaults | rope
