"""The tensors of an adapter's file by module: names are those of PEFT."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.tensor_file import Matrix, Rest, TensorFile

A, B = ".lora_A.weight", ".lora_B.weight"
EMBEDDING_A, EMBEDDING_B = ".lora_embedding_A", ".lora_embedding_B"
WHOLE = ".weight"
_BASE_LAYER = ".base_layer"
_PREFIX = "base_model.model."


@dataclass(slots=True)
class FileModule:
    """The tensors of a module, by what stands behind its name in the file.

    Attributes:
        path: in the file, without PEFT's prefix
    """

    path: str
    tensors: dict[str, Matrix] = field(default_factory=dict)


@dataclass(slots=True)
class FileModules:
    """
    Attributes:
        path: of the file
        modules: by their names in a model's layout
        wrapped: those that PEFT has wrapped a second time, of experts with two parameters
    """

    path: Path
    modules: dict[str, FileModule]
    wrapped: dict[str, FileModule]


def by_module(
    file: TensorFile, named: Callable[[str], str | None], *, known: bool, rest: Rest
) -> FileModules:
    """
    Args:
        named: the name of a module in the layout; None if it belongs to a part that is not served
        known: whether the file was checked before and has not changed

    Raises:
        AdapterError: a tensor is none of an adapter's, or twice there.
    """
    found = FileModules(file.path, {}, {})
    for key in sorted(file.entries):
        path, what = _split(file.path, key)
        modules = found.modules
        if path.endswith(_BASE_LAYER):
            path = path.removesuffix(_BASE_LAYER)
            # A module's own weights, or the inner one of two that wrap it.
            modules = found.modules if what == WHOLE else found.wrapped
        if (name := named(path)) is None:
            raise AdapterError(f"{file.path} has {key}, of a part that takes no adapters here")
        module = modules.setdefault(name, FileModule(path))
        if what in module.tensors:
            raise AdapterError(f"{file.path} has {what} of {path} twice")
        module.tensors[what] = file.matrix(key, known=known)
        rest()
    return found


def _split(path: Path, key: str) -> tuple[str, str]:
    """A tensor's module, and what of it the tensor is."""
    if not key.startswith(_PREFIX):
        raise AdapterError(f"{path} has a tensor {key}, which does not begin with {_PREFIX}")
    name = key.removeprefix(_PREFIX)
    for kind in (A, B, EMBEDDING_A, EMBEDDING_B, WHOLE):
        if name.endswith(kind):
            return name.removesuffix(kind), kind
    raise AdapterError(f"{path} has a tensor {key}, which is none of a plain LoRA adapter")
