"""Encoder-decoders: what their encoders read, from `config.json` alone.

The encoder reads a whole input at once. The decoder attends to what it made of it beside its own
earlier tokens (cross-attention), so a request has two lists of KV pages. Needs no torch, since the
HTTP process asks as well.
"""

from dataclasses import dataclass
from typing import Any

from pando_worker.models.errors import BrokenCheckpoint


@dataclass(frozen=True, slots=True)
class AudioInput:
    """Log-mel features, float32 [mel_bins, 2 * positions].

    Attributes:
        positions: that the encoder makes of them, always as many: shorter audio is padded
    """

    mel_bins: int
    positions: int


@dataclass(frozen=True, slots=True)
class TextInput:
    """Token ids, int32 [length].

    Attributes:
        positions: the most tokens, unless `is_relative`
        is_relative: whether the model has no table of positions, only distances between tokens, so
            that `context_length` alone bounds its texts
    """

    positions: int
    is_relative: bool


EncoderInput = AudioInput | TextInput

_AUDIO = ("WhisperForConditionalGeneration",)
_TEXT = ("BartForConditionalGeneration", "MBartForConditionalGeneration")
_RELATIVE = ("T5ForConditionalGeneration",)
ENCODER_DECODERS = (*_AUDIO, *_TEXT, *_RELATIVE)
"""The architectures that are served."""

RELATIVE_POSITIONS = 512
"""Of models without a table of positions: with as many T5 was trained."""


def encoder_input(raw: dict[str, Any]) -> EncoderInput | None:
    """What a model's encoder reads; None for a model without one.

    Args:
        raw: its `config.json`

    Raises:
        BrokenCheckpoint: a field is missing, or no number.
    """
    for architecture in raw.get("architectures") or []:
        if architecture in _AUDIO:
            return AudioInput(_count(raw, "num_mel_bins"), _count(raw, "max_source_positions"))
        if architecture in _TEXT:
            return TextInput(_count(raw, "max_position_embeddings"), is_relative=False)
        if architecture in _RELATIVE:
            return TextInput(
                _count({"n_positions": RELATIVE_POSITIONS, **raw}, "n_positions"), is_relative=True
            )
    return None


def source_positions(encoder: EncoderInput, context_length: int) -> int:
    """The most positions of a source.

    Args:
        context_length: tokens that a request may have
    """
    if isinstance(encoder, TextInput) and encoder.is_relative:
        return context_length
    return encoder.positions


def _count(raw: dict[str, Any], name: str) -> int:
    value = raw.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BrokenCheckpoint(f"config.json has {name} = {value!r}, which must be a whole number")
    return value
