"""Text encoders: models in which all tokens of a text see each other. They embed and classify, and
generate nothing. What `config.json` says of them; needs no torch, since the HTTP process asks.
"""

from pathlib import Path
from typing import Any

import msgspec

from pando_worker.models.errors import BrokenCheckpoint, unreadable

_FILES = {
    "Bert": "bert",
    "Camembert": "roberta",
    "ModernBert": "modernbert",
    "MPNet": "mpnet",
    "Roberta": "roberta",
    "XLMRoberta": "roberta",
}
_CLASSES = ("Model", "ForMaskedLM", "ForPreTraining", "ForSequenceClassification")

TEXT_ENCODERS = {f"{name}{kind}": file for name, file in _FILES.items() for kind in _CLASSES}
"""The file in `families/` of each architecture; heads that generate or fill in are left out."""

PADDING = 1
"""The position that padding had in training. MPNet has no other; RoBERTa's is the id of its token
for padding, of which this is the default. Texts begin at the next position."""


def text_positions(raw: dict[str, Any], architecture: str) -> int | None:
    """The longest text, in tokens; None for a model that is no text encoder.

    Args:
        raw: its `config.json`

    Raises:
        BrokenCheckpoint: there is no such number.
    """
    if (file := TEXT_ENCODERS.get(architecture)) is None:
        return None
    first = 0
    if file == "roberta":
        first = _whole_number(raw, "pad_token_id", PADDING, least=0) + 1
    elif file == "mpnet":
        first = PADDING + 1
    default = 8192 if file == "modernbert" else 512
    return _whole_number(raw, "max_position_embeddings", default, least=first + 1) - first


def _whole_number(raw: dict[str, Any], name: str, default: int, *, least: int) -> int:
    number = raw.get(name, default)
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise BrokenCheckpoint(
            f"config.json has {name} = {number!r}, which must be a whole number of at least {least}"
        )
    return number


class _SentenceConfig(msgspec.Struct):
    max_seq_length: int | None = None


def longest_sentence(model_dir: Path) -> int | None:
    """The longest text in sentence-transformers' file, in tokens; None if it has none.

    Raises:
        BrokenCheckpoint: the file cannot be read, or the number is no length.
    """
    path = model_dir / "sentence_bert_config.json"
    if not path.is_file():
        return None
    try:
        longest = msgspec.json.decode(path.read_bytes(), type=_SentenceConfig).max_seq_length
    except (OSError, msgspec.DecodeError) as error:
        raise unreadable(path, error) from error
    if longest is not None and longest < 1:
        raise BrokenCheckpoint(f"{path} has max_seq_length {longest}, which must be above 0")
    return longest
