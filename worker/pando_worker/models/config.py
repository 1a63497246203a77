"""A model's `config.json`: the fields that the whole engine needs, and those of its family.

`read_config` needs neither torch nor transformers, which take seconds to import. Field names are
the file's own. A null counts as absent.
"""

import types
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from pando_worker.models.errors import UnsupportedModel, unreadable
from pando_worker.models.kinds.base_model import has_lm_head, saved_as_base, with_head
from pando_worker.models.kinds.classifier import Classifier, read_classifier
from pando_worker.models.kinds.encoder_decoder import (
    ENCODER_DECODERS,
    EncoderInput,
    TextInput,
    encoder_input,
)
from pando_worker.models.kinds.text_encoder import TEXT_ENCODERS, longest_sentence, text_positions
from pando_worker.models.kinds.text_part import (
    WITH_IMAGES,
    VideoForm,
    image_token,
    text_fields,
    video_form,
    whole_image_tokens,
)
from pando_worker.models.registry import FAMILIES
from pando_worker.models.rope import Count, mrope_fields, rope_fields

T = TypeVar("T", bound=msgspec.Struct)

ModelImpl = Literal["auto", "pando", "transformers"]
"""Whose code runs a model; `auto` uses transformers for models that pando lacks."""

# Fields that change a model's computation, with their neutral value: a family whose `Config` lacks
# such a field supports only that value.
NEUTRAL: dict[str, Any] = {
    "hidden_act": "silu",
    "mrope": None,
    "partial_rotary_factor": 1.0,
}

# Alternative field names, with the name that families read.
SPELLINGS = {
    "num_experts": "num_local_experts",
    "_sliding_window_pattern": "sliding_window_pattern",
}


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A model's configuration, as all code outside its family sees it."""

    path: Path  # of config.json
    impl: ModelImpl
    architecture: str  # the class with a head, even if the checkpoint has no head
    has_head: bool  # False: only hidden states, for embeddings
    vocab_size: Count
    hidden_size: Count | None  # None if the file uses another name
    max_position_embeddings: Count
    image_token: int | None  # stands for images in prompts; None if the model reads text only
    video: VideoForm | None  # None if it sees no videos
    whole_image_tokens: int  # of an image, if these see each other; 0: attention is causal
    encoder: EncoderInput | None  # of an encoder-decoder
    is_text_encoder: bool  # all tokens see each other; it embeds or classifies
    classifier: Classifier | None  # of a model that classifies texts
    fields: dict[str, Any]  # all fields, including implied ones; for `family_config`


class _Given(msgspec.Struct):
    """The fields from which others are derived."""

    vocab_size: Count
    max_position_embeddings: Count | None = None
    n_positions: Count | None = None  # GPT-2's name for it
    max_target_positions: Count | None = None  # Whisper's, of the decoder
    is_encoder_decoder: bool = False
    architectures: list[str] = []
    partial_rotary_factor: float = 1.0
    rope_parameters: dict[str, Any] = {}
    rope_scaling: dict[str, Any] = {}
    hidden_size: Count = 1
    num_attention_heads: Count = 1


def read_config(model_dir: Path, impl: ModelImpl = "auto") -> ModelConfig:
    """Read `config.json` of a model directory.

    Raises:
        UnsupportedModel: pando has no code for its architecture and `impl` allows no other, or the
            model has no positions. Whether transformers has code is checked when it is built.
        BrokenCheckpoint: `config.json` is missing or malformed.
    """
    path = model_dir / "config.json"
    try:
        decoded = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        whole = {key: value for key, value in decoded.items() if value is not None}
        raw = _text_fields(whole, path)
        given = msgspec.convert(raw, _Given)
    except (OSError, msgspec.DecodeError) as error:
        raise unreadable(path, error) from error
    known = _known(given, impl, path)
    encoder = encoder_input(raw) if known else None
    positions = given.max_position_embeddings or given.n_positions or given.max_target_positions
    if isinstance(encoder, TextInput):
        positions = encoder.positions
    longest_text = text_positions(raw, known[0]) if known else None
    if longest_text is not None:
        positions = min(longest_text, longest_sentence(model_dir) or longest_text)
    if positions is None:
        raise UnsupportedModel(
            f"{path} ({given.architectures}) has no max_position_embeddings: models without, of"
            " state spaces or ALiBi, are not supported"
        )
    architecture = (known or given.architectures)[0]
    is_text_encoder = longest_text is not None
    return ModelConfig(
        path=path,
        impl=impl,
        architecture=architecture,
        has_head=architecture in given.architectures
        and not is_text_encoder
        and not saved_as_base(model_dir),
        vocab_size=given.vocab_size,
        hidden_size=raw.get("hidden_size") or raw.get("d_model"),
        max_position_embeddings=positions,
        image_token=image_token(whole),
        video=video_form(whole),
        whole_image_tokens=whole_image_tokens(whole),
        encoder=encoder,
        is_text_encoder=is_text_encoder,
        classifier=read_classifier(raw, given.architectures[0], sees_all=is_text_encoder)
        if given.architectures
        else None,
        fields=_with_implied(raw, given, model_dir) if known else raw,
    )


def _text_fields(whole: dict[str, Any], path: Path) -> dict[str, Any]:
    """The fields of the model's part for text. Raises UnsupportedModel."""
    raw = text_fields(whole)
    if raw is whole and "text_config" in raw:
        raise UnsupportedModel(
            f"{path} has architectures {raw.get('architectures')}, which have parts for more"
            f" than text; of such, these are supported: {', '.join(WITH_IMAGES)}"
        )
    return raw


def _known(given: _Given, impl: ModelImpl, path: Path) -> list[str]:
    """Those of its architectures that pando has code for. Raises UnsupportedModel if there is none,
    and `impl` or the kind of model allows no other code."""
    known = [name for each in given.architectures if (name := _known_as(each)) in FAMILIES]
    if not known and (impl == "pando" or not given.architectures):
        supported = ", ".join(FAMILIES)
        raise UnsupportedModel(
            f"{path} has architectures {given.architectures}; supported: {supported}"
        )
    if given.is_encoder_decoder and not known:
        raise UnsupportedModel(
            f"{path} has architectures {given.architectures}, which are encoder-decoders; of such,"
            f" these are supported: {', '.join(ENCODER_DECODERS)}"
        )
    return known


def _known_as(architecture: str) -> str:
    """The name by which the registry has it."""
    return architecture if architecture in TEXT_ENCODERS else with_head(architecture)


def family_config(config: ModelConfig, config_type: type[T]) -> T:
    """The fields of `config_type`, a family's `Config`.

    A field whose type is a Literal, or a union of `Rope` types, lists what the family supports.

    Raises:
        UnsupportedModel: the model needs something that the family's code lacks.
        BrokenCheckpoint: malformed or contradictory fields.
    """
    known = {field.encode_name: field.type for field in msgspec.structs.fields(config_type)}
    for name, value in config.fields.items():
        if name in known:
            allowed = list(get_args(known[name])) if get_origin(known[name]) is Literal else None
        else:
            allowed = [NEUTRAL[name]] if name in NEUTRAL else None
        if allowed is not None and value not in allowed:
            raise _unsupported(config, f"{name} {value!r}", allowed)
    if "rope" in known:
        kinds = _tags(known["rope"])
        kind = config.fields["rope"]["rope_type"]
        if kind not in kinds:
            raise _unsupported(config, f"rope type {kind!r}", kinds)
    try:
        return msgspec.convert(config.fields, config_type)
    except msgspec.ValidationError as error:
        raise unreadable(config.path, error) from error


def _with_implied(raw: dict[str, Any], given: _Given, model_dir: Path) -> dict[str, Any]:
    scaling = given.rope_scaling or given.rope_parameters
    others = {SPELLINGS[name]: value for name, value in raw.items() if name in SPELLINGS}
    # If window layers have their own angles: in the form of transformers 5, or in the older one.
    sliding = {"rope_theta": raw.get("rope_local_base_freq", 10_000.0)}
    full, sliding = (
        scaling.get("full_attention", scaling),
        scaling.get("sliding_attention", sliding),
    )
    return {
        "num_key_value_heads": given.num_attention_heads,
        "head_dim": given.hidden_size // given.num_attention_heads,
        **others,
        **raw,
        "partial_rotary_factor": full.get("partial_rotary_factor", given.partial_rotary_factor),
        "rope": rope_fields(raw, full),
        "mrope": mrope_fields(raw, full),
        "sliding_rope": rope_fields(raw, sliding),
        "has_lm_head": has_lm_head(model_dir),
    }


def _tags(rope: Any) -> list[str]:
    """The rope types of a `Rope` type or of a union of them."""
    kinds = get_args(rope) if get_origin(rope) in (Union, types.UnionType) else (rope,)
    return [str(kind.__struct_config__.tag) for kind in kinds]


def _unsupported(config: ModelConfig, what: str, allowed: list[Any]) -> UnsupportedModel:
    supported = ", ".join("none" if value is None else str(value) for value in allowed)
    return UnsupportedModel(
        f"{config.path} has {what}; supported in {config.architecture}: {supported}"
    )
