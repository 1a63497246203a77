"""Layers behind an embedding's pooling: those that sentence-transformers lists as Dense.

Each folder has a `config.json` and a `model.safetensors`. A vector is short, so numpy computes it
where the answer is written.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from pando_worker.models.errors import BrokenCheckpoint, unreadable
from pando_worker.models.safetensors_files import read_safetensors_header

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Float32 = NDArray[np.float32]

_WEIGHTS = "model.safetensors"
_INPUT = "sentence_embedding"


class UnsupportedLayerError(ValueError):
    """The layer is well-formed, but is not one of those here."""


@dataclass(frozen=True, slots=True, eq=False)
class DenseLayer:
    """
    Attributes:
        weight: float32 [out, in]
        bias: float32 [out]; None without one
    """

    weight: "Float32"
    bias: "Float32 | None"
    activation: "Callable[[Float32], Float32]"

    @property
    def size(self) -> int:
        """Of its output."""
        return int(self.weight.shape[0])

    def of(self, vector: "Float32") -> "Float32":
        found = self.weight @ vector
        return self.activation(found if self.bias is None else found + self.bias)


class _Config(msgspec.Struct):
    in_features: int
    out_features: int
    bias: bool = True
    activation_function: str = "torch.nn.modules.activation.Tanh"  # a Python class
    module_input_name: str = _INPUT
    module_output_name: str | None = None
    use_residual: bool = False


def read_dense_layer(folder: Path) -> DenseLayer:
    """
    Raises:
        BrokenCheckpoint: a file is missing, cannot be read, or does not fit the other.
        UnsupportedLayerError: it has another activation, a residual, or works on tokens.
    """
    path = folder / "config.json"
    try:
        config = msgspec.json.decode(path.read_bytes(), type=_Config)
    except (OSError, msgspec.DecodeError) as error:
        raise unreadable(path, error) from error
    name = config.activation_function.rpartition(".")[2]
    if (activation := _activations().get(name)) is None:
        raise UnsupportedLayerError(
            f"{path} has the activation {name[:60]}, not {' or '.join(_activations())}"
        )
    if config.use_residual:
        raise UnsupportedLayerError(f"{path} has use_residual")
    if {config.module_input_name, config.module_output_name or _INPUT} != {_INPUT}:
        raise UnsupportedLayerError(f"{path} has an input or output other than {_INPUT}")
    weight = _tensor(folder, "linear.weight", (config.out_features, config.in_features))
    bias = _tensor(folder, "linear.bias", (config.out_features,)) if config.bias else None
    return DenseLayer(weight, bias, activation)


def _activations() -> "dict[str, Callable[[Float32], Float32]]":
    # Imported here: it takes a tenth of a second, and most models have no such layer.
    import numpy as np

    def sigmoid(x: "Float32") -> "Float32":
        half = np.float32(0.5)
        found: Float32 = half * (np.tanh(half * x) + 1)  # nothing that overflows
        return found

    return {
        "Identity": lambda x: x,
        "Tanh": np.tanh,
        "ReLU": lambda x: np.maximum(x, np.float32(0)),
        "Sigmoid": sigmoid,
    }


def _tensor(folder: Path, name: str, shape: tuple[int, ...]) -> "Float32":
    import numpy as np

    path = folder / _WEIGHTS
    if not path.is_file():
        raise BrokenCheckpoint(f"{path} is missing; weights in other formats are not read")
    header = read_safetensors_header(path)
    entry = header.tensors.get(name)
    if entry is None or entry.shape != shape:
        had = "is not there" if entry is None else f"has the shape {list(entry.shape)}"
        raise BrokenCheckpoint(f"{path}: {name} {had}; config.json says {list(shape)}")
    sizes: dict[str, Literal[2, 4]] = {"F32": 4, "F16": 2, "BF16": 2}
    if (size := sizes.get(entry.dtype)) is None or entry.nbytes != size * entry.elements:
        raise BrokenCheckpoint(f"{path}: {name} has {entry.nbytes} bytes of {entry.dtype[:20]}")
    length = max(one.data_offsets[1] for one in header.tensors.values())
    try:
        with path.open("rb") as file:
            file.seek(header.end - length + entry.data_offsets[0])
            data = file.read(entry.nbytes)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) < entry.nbytes:
        raise BrokenCheckpoint(f"{path} ends within {name}; download it again")
    if entry.dtype == "BF16":
        upper = np.frombuffer(data, "<u2").astype("<u4") << np.uint32(16)
        return upper.view("<f4").reshape(shape)
    kind = "<f4" if size == 4 else "<f2"
    found: Float32 = np.frombuffer(data, kind).astype(np.float32).reshape(shape)
    return found
