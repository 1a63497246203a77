"""Reads an adapter in PEFT's form and checks it against the layers of its base model.

Nothing of a file is trusted: its size is bounded before it is read, its pickles are refused, and
every name, shape, type and number is checked before the adapter may run.
"""

import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.layout import Layout, Section
from pando_worker.adapters.peft_config import MOST_RANK, PeftConfig, read_peft_config
from pando_worker.adapters.tensor_file import Matrix, TensorFile, read_tensors

_PREFIX = "base_model.model."
_KINDS = (".lora_A.weight", ".lora_B.weight")


@dataclass(frozen=True, slots=True)
class Pair:
    """The two matrices of a module: it adds scale * B(A(x))."""

    a: Matrix  # [rank, inputs]
    b: Matrix  # [outputs, rank]
    scale: float

    @property
    def rank(self) -> int:
        return int(self.a.shape[0])


@dataclass(frozen=True, slots=True)
class Adapter:
    """
    Attributes:
        pairs: by the names that `Section` has
    """

    identity: bytes
    pairs: dict[str, Pair]
    rank: int  # the largest

    @property
    def num_bytes(self) -> int:
        return sum(pair.a.nbytes + pair.b.nbytes for pair in self.pairs.values())


@dataclass(slots=True)
class _ModuleTensors:
    """The tensors of a module, by what stands behind its name in the file."""

    path: str  # in the file, without PEFT's prefix
    tensors: dict[str, Matrix] = field(default_factory=dict)


def read_adapter(
    directory: Path,
    layout: Layout,
    *,
    named: Callable[[str], str | None],
    most_rank: int,
    most_bytes: int,
) -> Adapter:
    """
    Args:
        layout: of the base model
        named: the name of a module in `layout`; None if it belongs to a part that is not served
        most_rank: of any module
        most_bytes: of the file with the weights

    Raises:
        AdapterError: anything in its files is not as it should be, or not for this model.
    """
    config = read_peft_config(directory)
    file = read_tensors(directory, most_bytes)
    path, modules = file.path, _modules(file, named)
    sections = {section.name: section for section in layout}
    pairs: dict[str, Pair] = {}
    for name, module in modules.items():
        section = sections.get(name)
        if section is None:
            raise AdapterError(f"{path} has tensors for {module.path}, which this model lacks")
        if not config.targets(module.path):
            raise AdapterError(
                f"{path} has tensors for {module.path}, which its target_modules do not name"
            )
        pairs[name] = _pair(path, config, section, module, most_rank)
    if missing := [name for name in sections if name not in pairs and config.targets(name)]:
        raise AdapterError(
            f"{path} has no tensors for {missing[0]}, which its target_modules name"
            + (f", nor for {len(missing) - 1} more" if len(missing) > 1 else "")
        )
    if not pairs:
        raise AdapterError(f"{path} has no tensors: its target_modules match nothing here")
    return Adapter(_identity(pairs), pairs, max(pair.rank for pair in pairs.values()))


def _modules(file: TensorFile, named: Callable[[str], str | None]) -> dict[str, _ModuleTensors]:
    path = file.path
    modules: dict[str, _ModuleTensors] = {}
    for key in sorted(file.entries):
        module, what = _split(path, key)
        name = named(module)
        if name is None:
            raise AdapterError(f"{path} has {key}, of a part that takes no adapters here")
        known = modules.setdefault(name, _ModuleTensors(module))
        if what in known.tensors:
            raise AdapterError(f"{path} has {what} of {module} twice")
        known.tensors[what] = file.matrix(key)
    return modules


def _split(path: Path, key: str) -> tuple[str, str]:
    """A tensor's module, and what of it the tensor is."""
    if not key.startswith(_PREFIX):
        raise AdapterError(f"{path} has a tensor {key}, which does not begin with {_PREFIX}")
    name = key.removeprefix(_PREFIX)
    for kind in _KINDS:
        if name.endswith(kind):
            return name.removesuffix(kind), kind
    raise AdapterError(f"{path} has a tensor {key}, which is none of a plain LoRA adapter")


def _pair(
    path: Path, config: PeftConfig, section: Section, module: _ModuleTensors, most_rank: int
) -> Pair:
    a, b = (module.tensors.get(kind) for kind in _KINDS)
    if a is None or b is None:
        missing = _KINDS[0] if a is None else _KINDS[1]
        raise AdapterError(f"{path} has no {module.path}{missing}, only the other matrix")
    rank = config.rank(module.path)
    limit = min(most_rank, MOST_RANK)
    if rank > limit:
        raise AdapterError(f"{path} has rank {rank} at {module.path}; max_lora_rank allows {limit}")
    for matrix, wanted, kind in (
        (a, (rank, section.inputs), _KINDS[0]),
        (b, (section.outputs, rank), _KINDS[1]),
    ):
        if matrix.shape != wanted:
            raise AdapterError(
                f"{path}: {module.path}{kind} is {list(matrix.shape)}; with rank {rank} and this"
                f" model it must be {list(wanted)}"
            )
    scale = config.scale(module.path, rank)
    if not np.isfinite(scale):
        raise AdapterError(f"{path} has the scale {scale} at {module.path}")
    return Pair(a, b, scale)


def _identity(pairs: Mapping[str, Pair]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for name, pair in sorted(pairs.items()):
        shape = f"{name} {pair.a.dtype} {pair.a.shape} {pair.b.dtype} {pair.b.shape}"
        digest.update(shape.encode() + b"\0" + struct.pack("<d", pair.scale))
        digest.update(pair.a.data)
        digest.update(pair.b.data)
    return digest.digest()
