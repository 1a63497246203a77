"""Checkpoints of a decoder without its head, the form in which embedding models are published; or
with a head that classifies, as reward models have it.

Transformers' base classes (`Qwen3Model`) write them without the prefix `model.` in tensor names.
Their config.json may still name the class with the head, as Qwen3-Embedding's does, so only the
tensor names are reliable. Needs neither torch nor transformers.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from pando_worker.models.errors import unreadable
from pando_worker.models.kinds.classifier import CLASSIFIES
from pando_worker.models.safetensors_files import SafetensorsIndex, read_safetensors_header

T = TypeVar("T")

_EMBEDDING = "embed_tokens.weight"

# Base classes whose names cannot be derived from the class with the head.
_WITH_HEAD = {"Gemma3TextModel": "Gemma3ForCausalLM"}


def with_head(architecture: str) -> str:
    """The name of the class with the head that generates, for either class."""
    if architecture in _WITH_HEAD:
        return _WITH_HEAD[architecture]
    for end in ("Model", CLASSIFIES):
        if architecture.endswith(end):
            return f"{architecture.removesuffix(end)}ForCausalLM"
    return architecture


def saved_as_base(model_dir: Path) -> bool:
    """Whether a model directory's tensors are a base class's; False if it has no tensors.

    Raises:
        BrokenCheckpoint: a file cannot be read.
    """
    return _EMBEDDING in _tensor_names(model_dir)


def has_lm_head(model_dir: Path) -> bool:
    """Whether a model directory's tensors have a head beside the embedding; False without tensors.

    Raises:
        BrokenCheckpoint: a file cannot be read.
    """
    return "lm_head.weight" in _tensor_names(model_dir)


def as_with_head(tensors: Mapping[str, T]) -> dict[str, T]:
    """Tensors with the names that the class with the head uses; other tensors are unchanged."""
    if _EMBEDDING not in tensors:
        return dict(tensors)
    return {f"model.{name}": tensor for name, tensor in tensors.items()}


def _tensor_names(model_dir: Path) -> Collection[str]:
    index, single = model_dir / "model.safetensors.index.json", model_dir / "model.safetensors"
    path = index if index.is_file() else single
    try:
        if path is index:
            return msgspec.json.decode(index.read_bytes(), type=SafetensorsIndex).weight_map
        return read_safetensors_header(single).tensors if single.is_file() else ()
    except (OSError, msgspec.DecodeError) as error:
        raise unreadable(path, error) from error
