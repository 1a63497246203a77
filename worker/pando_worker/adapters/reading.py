"""Reads an adapter in PEFT's form and checks it against the layers of its base model.

Nothing of a file is trusted: its size is bounded before it is read, its pickles are refused, and
every name, shape, type and number is checked before the adapter may run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from pando_worker.adapters.adapter import Adapter, Pair, identity
from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.file_modules import (
    EMBEDDING_A,
    EMBEDDING_B,
    WHOLE,
    A,
    B,
    FileModule,
    FileModules,
    by_module,
)
from pando_worker.adapters.fused_experts import take_fused
from pando_worker.adapters.layout import Kind, Layout, Section
from pando_worker.adapters.peft_config import MOST_RANK, PeftConfig, read_peft_config
from pando_worker.adapters.tensor_file import Matrix, Rest, read_tensors

_MOST_SCALE = float(np.finfo(np.float32).max)


class Base(Protocol):
    """What is known of the base model."""

    layout: Layout

    def named(self, module: str) -> str | None:
        """The name of a module in `layout`; None if it belongs to a part that is not served."""
        ...

    def has_table(self, name: str, table: Matrix) -> bool:
        """Whether the base's own embedding or head has these numbers. The name is a section's."""
        ...


@dataclass(frozen=True, slots=True)
class _FilesBesideModel:
    """An adapter's files beside the model's sections."""

    path: Path
    config: PeftConfig
    sections: Mapping[str, Section]
    most_rank: int

    def pair(self, section: Section, module: FileModule) -> Pair:
        is_embedding = section.kind == "embedding"
        kinds = (EMBEDDING_A, EMBEDDING_B) if is_embedding else (A, B)
        if wrong := module.tensors.keys() - {*kinds}:
            raise AdapterError(f"{self.path} has {module.path}{min(wrong)}, which does not fit")
        a, b = (module.tensors.get(kind) for kind in kinds)
        if a is None or b is None:
            missing = kinds[0] if a is None else kinds[1]
            raise AdapterError(f"{self.path} has no {module.path}{missing}, only the other matrix")
        name = self._as_target(section, module.path)
        rank = self.config.rank(name)
        self._check_rank(rank, module.path)
        for matrix, wanted, kind in (
            (a, (rank, section.inputs), kinds[0]),
            (b, (section.outputs, rank), kinds[1]),
        ):
            if matrix.shape != wanted:
                raise AdapterError(
                    f"{self.path}: {module.path}{kind} is {list(matrix.shape)}; with rank {rank}"
                    f" and this model it must be {list(wanted)}"
                )
        return self.checked(Pair(a, b, self.config.scale(name, rank)), module.path)

    def checked(self, pair: Pair, name: str) -> Pair:
        self._check_rank(pair.rank, name)
        if not abs(pair.scale) <= _MOST_SCALE:
            raise AdapterError(f"{self.path} has the scale {pair.scale} at {name}")
        return pair

    def _check_rank(self, rank: int, name: str) -> None:
        limit = min(self.most_rank, MOST_RANK)
        if rank > limit:
            raise AdapterError(
                f"{self.path} has rank {rank} at {name}; max_lora_rank allows {limit}"
            )

    def _as_target(self, section: Section, path: str) -> str:
        """The name under which the configuration has a module, or its weight.

        Raises:
            AdapterError: it does not name it.
        """
        config = self.config
        in_vocabulary = section.kind in ("embedding", "head")
        if not (in_vocabulary and config.targets_all_linear) and config.targets(path):
            return path
        if config.targets_parameter(f"{path}.weight"):
            return f"{path}.weight"
        if in_vocabulary and config.ensure_weight_tying:
            return path  # PEFT gives the other of two tied ones an adapter as well
        raise AdapterError(
            f"{self.path} has tensors for {path}, which its target_modules do not name"
        )

    def table(self, section: Section, path: str, table: Matrix) -> Matrix:
        if table.shape != (wanted := (section.outputs, section.inputs)):
            raise AdapterError(
                f"{self.path}: {path}.weight is {list(table.shape)}; with this model it must be"
                f" {list(wanted)}"
            )
        return table

    def refuse_half_of_tied(self, tables: Mapping[str, Matrix]) -> None:
        """PEFT would put a table that `modules_to_save` does not name in the place of both.

        Raises:
            AdapterError: only one of them has it.
        """
        for name in tables:
            module = name.removesuffix(WHOLE)
            if len(tables) == 1 and not self._replaces(module):
                raise AdapterError(
                    f"{self.path} has other numbers than the base for {module}, to which another"
                    " table is tied, and not for that one: name it in modules_to_save"
                )

    def _replaces(self, module: str) -> bool:
        return self.config.saves(module) or bool(
            self.config.modules_to_save and self.config.ensure_weight_tying
        )

    def refuse_missing(self, present: set[str]) -> None:
        """Raises AdapterError if the file lacks what the configuration names."""
        kinds: set[Kind] = {self.sections[name].kind for name in present}
        wanted = {
            name: field
            for name, section in self.sections.items()
            if name not in present and (field := self._wanted_by(section, present, kinds))
        }
        if wanted:
            name, field = next(iter(wanted.items()))
            raise AdapterError(
                f"{self.path} has no tensors for {name}, which its {field} name"
                + (f", nor for {len(wanted) - 1} more" if len(wanted) > 1 else "")
            )

    def _wanted_by(self, section: Section, present: set[str], kinds: set[Kind]) -> str | None:
        """The field of the configuration that names a section."""
        config, name = self.config, section.name
        if section.kind == "table":
            module = name.removesuffix(WHOLE)
            return "modules_to_save" if config.saves(module) and module not in present else None
        if section.kind in ("embedding", "head") and config.saves(name):
            return None
        if config.targets_parameter(f"{name}.weight"):
            return "target_parameters"
        if section.kind in ("expert", "router") and section.kind not in kinds:
            # Transformers has them as parameters now, and PEFT skips modules that are not there.
            return None
        if section.kind != "linear" and config.targets_all_linear:
            return None
        return "target_modules" if config.targets(name) else None


def read_adapter(
    directory: Path,
    base: Base,
    *,
    most_rank: int,
    most_bytes: int,
    known: bytes | None = None,
    rest: Rest,
) -> Adapter:
    """
    Args:
        most_rank: of any module
        most_bytes: of the file with the weights
        known: the identity of these files if they were checked before and have not changed since

    Raises:
        AdapterError: anything in its files is not as it should be, or not for this model.
    """
    config = read_peft_config(directory)
    file = read_tensors(directory, most_bytes, rest)
    sections = {section.name: section for section in base.layout}
    reading = _FilesBesideModel(file.path, config, sections, most_rank)
    found = by_module(file, base.named, known=known is not None, rest=rest)
    pairs: dict[str, Pair] = {}
    for layer in base.layout.experts:
        for section, pair in take_fused(found, config, layer, sections):
            pairs[section.name] = reading.checked(pair, section.name)
    whole = _take_tables(reading, found)
    for name, module in found.modules.items():
        if (part := sections.get(name)) is None:
            raise AdapterError(f"{file.path} has tensors for {module.path}, which this model lacks")
        if module.tensors:
            pairs[name] = reading.pair(part, module)
    reading.refuse_missing(pairs.keys() | whole.keys())
    if not pairs and not whole:
        raise AdapterError(f"{file.path} has no tensors: its target_modules match nothing here")
    tables = {name: table for name, table in whole.items() if not base.has_table(name, table)}
    if base.layout.tied:
        reading.refuse_half_of_tied(tables)
    return Adapter(known or identity(pairs, tables, rest), pairs, tables, file.contents)


def _take_tables(reading: _FilesBesideModel, found: FileModules) -> dict[str, Matrix]:
    """The whole tables, by their sections' names. Takes them out of `found`."""
    if found.wrapped:
        path = next(iter(found.wrapped.values())).path
        raise AdapterError(f"{found.path} has two adapters of {path}, which is not served")
    tables: dict[str, Matrix] = {}
    for name, module in found.modules.items():
        if (table := module.tensors.pop(WHOLE, None)) is None:
            continue
        if (section := reading.sections.get(f"{name}{WHOLE}")) is None:
            raise AdapterError(
                f"{found.path} has the whole module {module.path}; only the embedding and the head"
                " of a model may be replaced"
            )
        tables[section.name] = reading.table(section, module.path, table)
    return tables
