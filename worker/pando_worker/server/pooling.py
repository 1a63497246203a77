"""How hidden states become an embedding: by the worker's setting, or by the model's files.

sentence-transformers writes these files: `modules.json` lists the modules of the embedding model,
and the folder of the one named Pooling has a `config.json` with the pooling mode.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from pando_worker.messages import Pooling
from pando_worker.models.errors import unreadable

T = TypeVar("T")

_KNOWN_PARTS = ("Transformer", "Pooling", "Normalize")
_USUAL_FOLDER = "1_Pooling"
_MODES = {
    "cls": Pooling.CLS,
    "lasttoken": Pooling.LAST,
    "max": Pooling.MAX,
    "mean": Pooling.MEAN,
    "mean_sqrt_len_tokens": Pooling.SQRT,
    "weightedmean": Pooling.WEIGHTED,
}
# Before version 5.3 each mode was a separate flag.
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True, slots=True)
class NoEmbeddings:
    """This worker does not support the model's embeddings."""

    reason: str


@dataclass(frozen=True, slots=True)
class Embeddings:
    """
    Attributes:
        is_normalized: whether vectors have length 1
    """

    pooling: Pooling
    is_normalized: bool = True


LAST_TOKEN = Embeddings(Pooling.LAST)
"""Of a decoder whose files say nothing."""


def read_pooling(
    model_dir: Path,
    choice: Literal["auto", "last", "mean", "cls", "max"],
    *,
    default: Pooling = Pooling.LAST,
) -> Embeddings | NoEmbeddings:
    """`auto` follows the files. Vectors have length 1 unless the files list modules, and none of
    them normalizes.

    Args:
        default: of `auto`, if the files do not specify pooling

    Raises:
        BrokenCheckpoint: a file cannot be read.
    """
    parts = _read(model_dir / "modules.json", list[_Module]) or []
    kinds = [part.kind for part in parts]
    if others := [kind for kind in kinds if kind not in _KNOWN_PARTS]:
        return NoEmbeddings(
            f"its modules.json has {', '.join(others)}: this worker supports only"
            f" {', '.join(_KNOWN_PARTS)}"
        )
    is_normalized = not parts or "Normalize" in kinds
    if choice != "auto":
        return Embeddings(Pooling(choice), is_normalized)
    folder = next((part.path for part in parts if part.kind == "Pooling"), _USUAL_FOLDER)
    config = _read(model_dir / folder / "config.json", dict[str, Any])
    if config is None:
        return Embeddings(default, is_normalized)
    modes = _modes(config)
    if len(modes) == 1 and modes[0] in _MODES:
        return Embeddings(_MODES[modes[0]], is_normalized)
    return NoEmbeddings(
        f"its {folder}/config.json has pooling {' and '.join(modes) or 'none'}: this worker"
        f" supports {' or '.join(_MODES)}; choose one with the setting pooling"
    )


class _Module(msgspec.Struct):
    type: str  # a Python class with its module
    path: str = ""

    @property
    def kind(self) -> str:
        return self.type.rpartition(".")[2]


def _modes(config: dict[str, Any]) -> list[str]:
    named = config.get("pooling_mode")
    if named is not None:
        return list(map(str, named)) if isinstance(named, list) else [str(named)]
    return [mode for flag, mode in _FLAGS.items() if config.get(flag)]


def _read(path: Path, kind: type[T]) -> T | None:
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise unreadable(path, error) from error
