"""`GgufTensor`: a tensor of a GGUF file, decoded as it is read.

llama.cpp stacks experts, pairs the rotary dimensions of some architectures, and adds 1 to some
norms; that is undone here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from torch import Tensor

from pando_worker.models.loading.gguf.header import TensorPlace

_DTYPES = {"F32": "F32", "F16": "F16", "BF16": "BF16"}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A `Stored` tensor, or a run of rows of one.

    Attributes:
        shape: of it; without dimensions before the rows where `first_row` chose one of a stack
        pairs: rows a head, where the file has them in pairs and the model in halves
        added: what the file has more than the model
    """

    path: Path
    place: TensorPlace
    shape: tuple[int, ...]
    first_row: int = 0
    pairs: int = 0
    added: float = 0.0

    @property
    def dtype(self) -> str:
        return _DTYPES.get(self.place.type.name, "F32")

    def of_expert(self, number: int) -> "GgufTensor":
        """One matrix of a stack of them."""
        _, *matrix = self.shape
        return replace(self, shape=tuple(matrix), first_row=number * matrix[0])

    def read(self, part: tuple[slice, ...], device: torch.device) -> Tensor:
        """As float32."""
        part = part or tuple(slice(0, size) for size in self.shape)
        *leading, columns = part
        rows = self._rows(leading)
        values = torch.from_numpy(self._decoded(rows))
        taken = values[:, columns].reshape(*(one.stop - one.start for one in leading), -1)
        if self.pairs and len(self.shape) == 1:  # a bias: its values are the rows
            taken = values[0, self._in_file(np.arange(columns.start, columns.stop))]
        result = (taken - self.added if self.added else taken).to(device)
        return result.reshape([one.stop - one.start for one in part])

    def _rows(self, leading: Sequence[slice]) -> np.ndarray:
        """Of the file's, as numbers: rows of a matrix, or the one of a vector."""
        if not leading:
            return np.array([self.first_row])
        (rows,) = leading
        wanted = np.arange(rows.start, rows.stop)
        return self.first_row + (self._in_file(wanted) if self.pairs else wanted)

    def _in_file(self, rows: np.ndarray) -> np.ndarray:
        """Row i of the first half of a head is row 2i of the file, of the second 2i + 1."""
        head, row = np.divmod(rows, self.pairs)
        half, index = np.divmod(row, self.pairs // 2)
        return np.asarray(head * self.pairs + 2 * index + half)

    def _decoded(self, rows: np.ndarray) -> np.ndarray:
        """[rows, all columns] in float32."""
        place = self.place
        count = prod(place.shape[:-1])
        data = np.memmap(
            self.path, np.uint8, "r", offset=place.start, shape=(count, place.row_bytes)
        )
        chosen = np.ascontiguousarray(data[rows])
        return np.asarray(dequantize(chosen, GGMLQuantizationType[place.type.name]), np.float32)
