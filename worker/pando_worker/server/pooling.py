"""How hidden states become an embedding: by the worker's setting, or by the model's files.

sentence-transformers writes these files: `modules.json` lists the modules of the embedding model,
and the folder of the one named Pooling has a `config.json` with the pooling mode. Those named Dense
are read in `dense_layers.py`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from pando_worker.messages import Pooling
from pando_worker.models.errors import unreadable
from pando_worker.server.dense_layers import DenseLayer, UnsupportedLayerError, read_dense_layer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Float32 = NDArray[np.float32]

T = TypeVar("T")

_KNOWN_PARTS = ("Transformer", "Pooling", "Dense", "Normalize")  # in the order that is supported
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
        layers: applied to what the engine pooled, before it is normalized
    """

    pooling: Pooling
    is_normalized: bool = True
    layers: tuple[DenseLayer, ...] = ()

    @property
    def is_pooled_normalized(self) -> bool:
        """Whether the engine's vector has length 1."""
        return self.is_normalized and not self.layers

    @property
    def size(self) -> int | None:
        """Of an embedding; None: that of the model's hidden states."""
        return self.layers[-1].size if self.layers else None

    def vector(self, pooled: bytes) -> "Float32":
        """The embedding that the engine's vector becomes; a zero vector keeps its length."""
        # Imported here: it takes a tenth of a second, and most workers embed nothing.
        import numpy as np

        vector: Float32 = np.frombuffer(pooled, dtype="<f4")
        for layer in self.layers:
            vector = layer.of(vector)
        if self.layers and self.is_normalized and (length := np.linalg.norm(vector)):
            vector = vector / length
        return vector


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
    if kinds != sorted(kinds, key=_KNOWN_PARTS.index):
        return NoEmbeddings(
            f"its modules.json has {', '.join(kinds)} in this order: this worker supports only"
            f" {', '.join(_KNOWN_PARTS)}"
        )
    try:
        folders = [model_dir / part.path for part in parts if part.kind == "Dense"]
        layers = tuple(map(read_dense_layer, folders))
    except UnsupportedLayerError as error:
        return NoEmbeddings(f"this worker does not support one of its layers: {error}")
    is_normalized = not parts or "Normalize" in kinds
    if choice != "auto":
        return Embeddings(Pooling(choice), is_normalized, layers)
    folder = next((part.path for part in parts if part.kind == "Pooling"), _USUAL_FOLDER)
    config = _read(model_dir / folder / "config.json", dict[str, Any])
    if config is None:
        return Embeddings(default, is_normalized, layers)
    modes = _modes(config)
    if len(modes) == 1 and modes[0] in _MODES:
        return Embeddings(_MODES[modes[0]], is_normalized, layers)
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
