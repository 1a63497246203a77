"""Brings an adapter into the form of one rank's device memory.

One thread does it: those of torch would use the cores that the model computes on.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.layout import Layout, Placing, Section, pieces
from pando_worker.adapters.reading import Adapter, Pair
from pando_worker.adapters.tensor_file import Matrix
from pando_worker.models.lora import PackedAdapter, PackedSection

# bfloat16 as its bits, since numpy has no such type.
_FEW = 16_384  # numbers; half of those that torch would give to several threads
_TYPES: dict[torch.dtype, type] = {
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.bfloat16: np.uint16,
}


def pack(adapter: Adapter, layout: Layout, dtype: torch.dtype) -> PackedAdapter:
    """
    Raises:
        AdapterError: a number is too large for `dtype`.
    """
    placing = Placing(layout.page_numbers)
    sections = tuple(_placed(adapter.pairs.get(each.name), each, placing) for each in layout)
    pages: NDArray[Any] = np.empty((placing.pages, layout.page_numbers), dtype=_TYPES[dtype])
    for section, packed in zip(layout, sections, strict=True):
        if (pair := adapter.pairs.get(section.name)) is not None:
            _put(pages, section, packed, pair)
            _check(pages, section, packed, pair, dtype)
    return PackedAdapter(torch.from_numpy(pages).view(dtype), sections)


def _placed(pair: Pair | None, section: Section, placing: Placing) -> PackedSection:
    if pair is None:
        return PackedSection()
    a = placing.place(pair.rank, section.depth)
    return PackedSection(pair.rank, pair.scale, a, placing.place(pair.rank, section.width))


def _put(pages: NDArray[Any], section: Section, packed: PackedSection, pair: Pair) -> None:
    first, end = section.taken_inputs
    for rows, part in _parts(pages, packed.a, packed.rank, section.depth):
        _copy(pair.a[rows, first:end], part)
    for rows, part in _parts(pages, packed.b, packed.rank, section.width):
        column = 0
        for start, stop in section.taken_outputs:
            _copy(pair.b[start:stop, rows].T, part[:, column : column + stop - start])
            column += stop - start


def _check(
    pages: NDArray[Any], section: Section, packed: PackedSection, pair: Pair, dtype: torch.dtype
) -> None:
    """Numbers become infinite only in a type of a smaller range."""
    if dtype != torch.float16 and np.float64 not in (pair.a.dtype, pair.b.dtype):
        return
    for start, columns in ((packed.a, section.depth), (packed.b, section.width)):
        for _, part in _parts(pages, start, packed.rank, columns):
            if not torch.from_numpy(part).view(dtype).isfinite().all():
                raise AdapterError(f"{section.name} has numbers that are too large for {dtype}")


def _parts(
    pages: NDArray[Any], start: int, rows: int, columns: int
) -> list[tuple[slice, NDArray[Any]]]:
    """The rows of a matrix in each page, and the memory for them."""
    return [
        (
            slice(each.first, each.first + each.rows),
            pages[each.page, each.place : each.place + each.rows * columns].reshape(-1, columns),
        )
        for each in pieces(start, rows, columns, pages.shape[1])
    ]


def _copy(matrix: Matrix, to: NDArray[Any]) -> None:
    """Converts the type; uint16 are the bits of bfloat16."""
    if matrix.dtype == to.dtype:
        to[:] = matrix
        return
    # Torch converts to and from bfloat16 in one pass. It computes so few numbers in one thread.
    rows = max(1, _FEW // matrix.shape[1])
    for first in range(0, len(matrix), rows):
        part = slice(first, first + rows)
        _numbers(to[part]).copy_(_numbers(matrix[part]))


def _numbers(matrix: Matrix) -> Tensor:
    tensor = torch.from_numpy(matrix)
    return tensor.view(torch.bfloat16) if matrix.dtype == np.uint16 else tensor
