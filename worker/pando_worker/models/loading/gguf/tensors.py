"""`GgufTensor`: a tensor of a GGUF file, decoded as it is read.

llama.cpp stacks experts, pairs the rotary dimensions of some architectures, and adds 1 to some
norms; that is undone here.
"""

from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pando_worker.models.loading.gguf.decoding import decode
from pando_worker.models.loading.gguf.header import TensorPlace

_DTYPES = {"F32": "F32", "F16": "F16", "BF16": "BF16"}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A `Stored` vector or matrix, or a run of rows of a stack of matrices.

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
        first = self._in_file(part[0])
        if len(part) == 1:
            taken = self._decoded(np.array([self.first_row]))[0, torch.from_numpy(first)]
        else:
            taken = self._decoded(self.first_row + first)[:, part[1]]
        return (taken - self.added if self.added else taken).to(device)

    def blocks(self, rows: slice) -> np.ndarray:
        """Some rows of a matrix as they are in the file, [rows, bytes of a row]."""
        return self._bytes(self.first_row + self._in_file(rows))

    def _in_file(self, part: slice) -> np.ndarray:
        """Which rows of the file, or values of its vector, these are.

        Row i of a head's first half is row 2i of the file, of the second 2i + 1.
        """
        rows = np.arange(part.start, part.stop)
        if not self.pairs:
            return rows
        head, row = np.divmod(rows, self.pairs)
        half, index = np.divmod(row, self.pairs // 2)
        return np.asarray(head * self.pairs + 2 * index + half)

    def _decoded(self, rows: np.ndarray) -> Tensor:
        """[rows, all columns] in float32."""
        out = torch.empty(len(rows), self.place.shape[-1])
        decode(torch.from_numpy(self._bytes(rows)), self.place.type, out)
        return out

    def _bytes(self, rows: np.ndarray) -> np.ndarray:
        """[rows, bytes of a row]"""
        place = self.place
        count = prod(place.shape[:-1])
        data = np.memmap(
            self.path, np.uint8, "r", offset=place.start, shape=(count, place.row_bytes)
        )
        return np.ascontiguousarray(data[rows])
