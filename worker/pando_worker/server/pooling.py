"""How a model's hidden states become an embedding: as it was told, or as the model's files say.

sentence-transformers writes these files: `modules.json` lists the parts that make an embedding, and
the one named Pooling has a folder with a `config.json` that says which hidden states count.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from pando_worker.messages import Pooling
from pando_worker.models.errors import BrokenCheckpoint

T = TypeVar("T")

_KNOWN_PARTS = ("Transformer", "Pooling", "Normalize")
_USUAL_FOLDER = "1_Pooling"
_MODES = {"mean": Pooling.MEAN, "lasttoken": Pooling.LAST}
# Before version 5.3 each mode was a flag of its own.
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
    """This worker cannot make the model's embeddings."""

    reason: str


def read_pooling(
    model_dir: Path, choice: Literal["auto", "last", "mean"]
) -> Pooling | NoEmbeddings:
    """`auto` is what the files say, and the last token where they say nothing.

    Raises:
        BrokenCheckpoint: a file that cannot be read.
    """
    parts = _read(model_dir / "modules.json", list[_Module]) or []
    others = [part.kind for part in parts if part.kind not in _KNOWN_PARTS]
    if others:
        return NoEmbeddings(
            f"its modules.json has {', '.join(others)}: this worker makes embeddings of"
            f" {', '.join(_KNOWN_PARTS)} alone"
        )
    if choice != "auto":
        return Pooling(choice)
    folder = next((part.path for part in parts if part.kind == "Pooling"), _USUAL_FOLDER)
    config = _read(model_dir / folder / "config.json", dict[str, Any])
    if config is None:
        return Pooling.LAST
    modes = _modes(config)
    if len(modes) == 1 and modes[0] in _MODES:
        return _MODES[modes[0]]
    return NoEmbeddings(
        f"its {folder}/config.json asks for the pooling {' and '.join(modes) or 'none'}: this"
        f" worker has {' or '.join(_MODES)}; the setting pooling can choose one"
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
        raise BrokenCheckpoint(f"cannot read {path}: {error}") from error
