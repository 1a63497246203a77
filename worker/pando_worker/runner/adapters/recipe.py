"""`Recipe`: makes the pages of an adapter that was checked from its file again.

To read an adapter is mostly Python: a header, names, patterns, and views of some hundred matrices.
A recipe knows where each matrix is in the file and in the pages, so it makes the same pages in
half of the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pando_worker.adapters.adapter import Adapter
from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.files import open_regular
from pando_worker.adapters.layout import Layout
from pando_worker.adapters.tensor_file import WEIGHTS, Matrix
from pando_worker.models.lora.linear import PackedAdapter, PackedSection
from pando_worker.runner.adapters.host_cache import Shares
from pando_worker.runner.adapters.packing import FEW, PAGE_TYPES, convert, copies

_PIECE = 8 * FEW  # numbers that are read at once


@dataclass(frozen=True, slots=True)
class _SharePlan:
    """A rank's share of an adapter.

    Attributes:
        shape: of its pages
        copies: int64 [copies, 7]: rows and columns; the place of the first number in the file, and
            how far it is to the next row and column; its place in the pages, and how far it is to
            the next row. In bytes, as if the file's numbers had the type of the pages
    """

    sections: tuple[PackedSection, ...]
    shape: tuple[int, ...]
    copies: NDArray[np.int64]

    def pages(self, numbers: Matrix) -> NDArray[Any]:
        """
        Args:
            numbers: those of the file, [n]
        """
        pages = np.empty(self.shape, dtype=numbers.dtype)
        kind, size = pages.dtype, pages.itemsize
        for rows, columns, first, down, right, to, width in self.copies.tolist():
            np.copyto(
                np.ndarray((rows, columns), kind, pages.data, to, (width, size)),
                np.ndarray((rows, columns), kind, numbers.data, first, (down, right)),
            )
        return pages


@dataclass(frozen=True, slots=True)
class Recipe:
    """
    Attributes:
        length: of the file, in bytes
        given: the type of its numbers
        dtype: of the pages
    """

    length: int
    given: np.dtype[Any]
    dtype: torch.dtype
    plans: tuple[_SharePlan, ...]

    def shares(self, directory: Path) -> Shares:
        """What `pack` makes of the adapter, if its files have not changed.

        Raises:
            AdapterError: the file cannot be read, or has another length.
        """
        path = directory / WEIGHTS
        try:
            numbers = self._numbers(path)
        except OSError as error:
            raise AdapterError(f"cannot read {path}: {error}") from error
        return [
            PackedAdapter(torch.from_numpy(plan.pages(numbers)).view(self.dtype), plan.sections)
            for plan in self.plans
        ]

    def _numbers(self, path: Path) -> NDArray[Any]:
        """Those of the whole file, its header among them, in the type of the pages."""
        kind = PAGE_TYPES[self.dtype]
        numbers: NDArray[Any] = np.empty(self.length // self.given.itemsize, dtype=kind)
        piece: NDArray[Any] = np.empty(_PIECE, dtype=self.given)
        file, length = open_regular(path)
        with file:
            if length != self.length:
                raise AdapterError(f"{path} has changed since it was checked; load it again")
            for first in range(0, len(numbers), _PIECE):
                to = numbers[first : first + _PIECE]
                read = to if self.given == kind else piece[: len(to)]
                if file.readinto(read.view(np.uint8).data) != read.nbytes:
                    raise AdapterError(f"cannot read {path}: it has become shorter")
                if read is not to:
                    convert(read, to)
        return numbers


def recipe_of(adapter: Adapter, layouts: Sequence[Layout], shares: Shares) -> Recipe | None:
    """
    Args:
        shares: what `pack` made of the adapter for each layout

    Returns:
        None if the file has numbers of several types, or if a matrix is no part of it.
    """
    matrices = [matrix for pair in adapter.pairs.values() for matrix in (pair.a, pair.b)]
    types = {matrix.dtype for matrix in [*matrices, *adapter.tables.values()]}
    if len(types) != 1:
        return None
    [given] = types
    plans = []
    for layout, share in zip(layouts, shares, strict=True):
        if (plan := _plan(adapter, layout, share)) is None:
            return None
        plans.append(plan)
    return Recipe(len(adapter.contents), given, shares[0].pages.dtype, tuple(plans))


def _plan(adapter: Adapter, layout: Layout, share: PackedAdapter) -> _SharePlan | None:
    file = np.frombuffer(adapter.contents, dtype=np.uint8)
    in_bytes: NDArray[Any] = share.pages.view(torch.uint8).numpy()
    pages: NDArray[Any] = in_bytes.view(PAGE_TYPES[share.pages.dtype])
    rows = []
    for section, packed in zip(layout, share.sections, strict=True):
        for matrix, to in copies(adapter, section, packed, pages):
            place = _address(matrix) - _address(file)
            bytes_before = (place, *matrix.strides)
            if not 0 <= place < len(file) or any(each % matrix.itemsize for each in bytes_before):
                return None
            before = [each // matrix.itemsize * pages.itemsize for each in bytes_before]
            rows.append([*matrix.shape, *before, _address(to) - _address(pages), to.strides[0]])
    return _SharePlan(share.sections, pages.shape, np.array(rows, dtype=np.int64).reshape(-1, 7))


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
