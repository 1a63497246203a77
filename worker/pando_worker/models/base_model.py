"""Checkpoints of a decoder without its head, as embedding models are published.

The base classes of transformers (`Qwen3Model`) write them: their tensors lack the prefix `model.`.
Their config.json may name the class with the head all the same, as Qwen3-Embedding's does, so that
it is the tensors' names that tell. Needs neither torch nor transformers.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from pando_worker.models.errors import BrokenCheckpoint

T = TypeVar("T")

_EMBEDDING = "embed_tokens.weight"
_MAX_HEADER_BYTES = 100_000_000  # safetensors' own bound

# Base classes whose names do not follow from the class with the head.
_WITH_HEAD = {"Gemma3TextModel": "Gemma3ForCausalLM"}


def with_head(architecture: str) -> str:
    """The name of the class that has a head, too."""
    if architecture in _WITH_HEAD:
        return _WITH_HEAD[architecture]
    if architecture.endswith("Model"):
        return f"{architecture.removesuffix('Model')}ForCausalLM"
    return architecture


def saved_as_base(model_dir: Path) -> bool:
    """Whether a model directory's tensors are a base class's; False where it has none.

    Raises:
        BrokenCheckpoint: a file that cannot be read.
    """
    return _EMBEDDING in _tensor_names(model_dir)


def as_with_head(tensors: Mapping[str, T]) -> dict[str, T]:
    """The tensors of a base class as the class with the head names them; others as they are."""
    if _EMBEDDING not in tensors:
        return dict(tensors)
    return {f"model.{name}": tensor for name, tensor in tensors.items()}


class SafetensorsIndex(msgspec.Struct):
    """Of a checkpoint in several files."""

    weight_map: dict[str, str]  # tensor: file


def _tensor_names(model_dir: Path) -> Collection[str]:
    index, single = model_dir / "model.safetensors.index.json", model_dir / "model.safetensors"
    path = index if index.is_file() else single
    try:
        if path is index:
            return msgspec.json.decode(index.read_bytes(), type=SafetensorsIndex).weight_map
        return _header(single) if single.is_file() else ()
    except (OSError, msgspec.DecodeError) as error:
        raise BrokenCheckpoint(f"cannot read {path}: {error}") from error


def _header(path: Path) -> Collection[str]:
    """Names in a safetensors file: eight bytes of length, then a JSON object by name."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _MAX_HEADER_BYTES:
            raise BrokenCheckpoint(f"cannot read {path}: its header says it has {length} bytes")
        return msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
