"""`BaseModel`: what a check of an adapter must know of the model that it is for."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from pando_worker.adapters.layout import Layout
from pando_worker.adapters.reading import Base
from pando_worker.adapters.tensor_file import Matrix
from pando_worker.models.errors import ModelError
from pando_worker.models.kinds.text_part import text_tensors
from pando_worker.models.loading.checkpoint import open_checkpoint
from pando_worker.models.loading.checkpoint_tensor import Stored
from pando_worker.runner.adapters.packing import FEW, numbers_of

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class BaseModel(Base):
    """
    Attributes:
        layout: of the first rank
        directory: of the model; None if its weights come from no file
        dtype: in which numbers are compared
    """

    layout: Layout
    directory: Path | None
    dtype: torch.dtype

    def named(self, module: str) -> str | None:
        if not (renamed := list(text_tensors({module: None}))):
            return None
        [name] = renamed
        names = self._names
        if name not in names and f"model.{name}" in names:
            name = f"model.{name}"  # trained on the class without a head
        return self.layout.renamed.get(name, name)

    @cached_property
    def _names(self) -> set[str]:
        """Those of sections, and of what transformers names otherwise."""
        names = {section.name for section in self.layout}
        names.update(self.layout.renamed, (layer.module for layer in self.layout.experts))
        return names

    def has_table(self, name: str, table: Matrix) -> bool:
        if self.directory is None:
            return False
        try:
            with open_checkpoint(self.directory) as tensors:
                own = _table(name, text_tensors(tensors))
                return own is not None and self._is_equal(own, table)
        except ModelError:
            return False  # not in this form any more; then the adapter's own is used

    def _is_equal(self, own: Stored, table: Matrix) -> bool:
        if own.shape != table.shape:
            return False
        rows = max(1, FEW // table.shape[1])
        for first in range(0, len(table), rows):
            some = slice(first, min(first + rows, len(table)))
            mine = own.read((some, slice(0, table.shape[1])), _CPU).to(self.dtype)
            if not torch.equal(mine, numbers_of(table[some]).to(self.dtype)):
                return False
        return True


def _table(name: str, tensors: Mapping[str, Stored]) -> Stored | None:
    """A model without a head uses its embedding as one."""
    return tensors.get(name) or tensors.get("model.embed_tokens.weight")
