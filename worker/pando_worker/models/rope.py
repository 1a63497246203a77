"""Rotary parameters of a `config.json`, in one form for both spellings.

The spellings are `rope_theta` with `rope_scaling`, and transformers 5's `rope_parameters`.
`layers/rotary.py` computes the angles.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]
Positive = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(gt=0, le=1)]


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


class LongRope(msgspec.Struct, frozen=True, tag_field="rope_type", tag="longrope"):
    rope_theta: Positive
    factor: Positive  # by which the context is extended
    original_max_position_embeddings: Count
    short_factor: tuple[Positive, ...]  # one per frequency, for contexts up to the original length
    long_factor: tuple[Positive, ...]  # one per frequency, for longer contexts
    attention_factor: Positive | None = None


Rope = DefaultRope | LinearRope | Llama3Rope | YarnRope | LongRope


class MRope(msgspec.Struct, frozen=True):
    """Multimodal rotary positions (Qwen2-VL, arXiv:2409.12191): a token has positions in three
    dimensions, and each frequency turns by one of them.

    Attributes:
        sections: how many frequencies turn by time, by height and by width
        interleaved: whether these take turns; otherwise they stand in this order
    """

    sections: tuple[Count, Count, Count]
    interleaved: bool = False


def mrope_fields(raw: dict[str, Any], scaling: dict[str, Any]) -> dict[str, Any] | None:
    """The fields of an `MRope`, of which a file may leave out some; None for a model with plain
    positions. Arguments as in `rope_fields`."""
    given = {**raw, **scaling}
    if (sections := given.get("mrope_section")) is None:
        return None
    return {"sections": sections, "interleaved": given.get("mrope_interleaved", False)}


def rope_fields(raw: dict[str, Any], scaling: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `Rope`: `scaling` with those that other fields imply.

    Args:
        raw: the whole config file
        scaling: its `rope_scaling` or `rope_parameters`
    """
    longest = raw.get("max_position_embeddings", 2048)
    fields = {
        "rope_type": scaling.get("type", "default"),
        "rope_theta": raw.get("rope_theta", 10_000.0),
        "original_max_position_embeddings": longest,
    }
    fields |= {key: value for key, value in scaling.items() if value is not None}
    if original := raw.get("original_max_position_embeddings"):
        fields["original_max_position_embeddings"] = original
    if fields["rope_type"] == "mrope":  # which `MRope` has
        fields["rope_type"] = "default"
    if fields["rope_type"] == "su":  # the name in the first Phi-3 files
        fields["rope_type"] = "longrope"
    if fields["rope_type"] == "longrope":
        fields.setdefault("factor", longest / fields["original_max_position_embeddings"])
    return fields
