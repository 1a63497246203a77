"""Brings an adapter into the form of one rank's device memory.

One thread does it: those of torch would use the cores that the model computes on.
"""

from collections.abc import Iterator, Set
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pando_worker.adapters.adapter import Adapter, Pair
from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.layout import Layout, Placing, Section, pieces
from pando_worker.adapters.tensor_file import Matrix, Rest
from pando_worker.models.lora.linear import PackedAdapter, PackedSection

FEW = 16_384
"""Numbers; half of those that torch would give to several threads."""

# bfloat16 as its bits, since numpy has no such type.
PAGE_TYPES: dict[torch.dtype, type] = {
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.bfloat16: np.uint16,
}


def pack(
    adapter: Adapter, layout: Layout, dtype: torch.dtype, rest: Rest = lambda: None
) -> PackedAdapter:
    """
    Raises:
        AdapterError: a number is too large for `dtype`.
    """
    placing = Placing(layout.page_numbers)
    sections = tuple(_placed(adapter, section, placing) for section in layout)
    pages: NDArray[Any] = np.empty((placing.pages, layout.page_numbers), dtype=PAGE_TYPES[dtype])
    for section, packed in zip(layout, sections, strict=True):
        given: set[np.dtype[Any]] = set()
        for matrix, to in copies(adapter, section, packed, pages):
            _copy(matrix, to)
            given.add(matrix.dtype)
        if given:
            _check(pages, section, packed, given, dtype)
        rest()
    return PackedAdapter(torch.from_numpy(pages).view(dtype), sections)


def copies(
    adapter: Adapter, section: Section, packed: PackedSection, pages: NDArray[Any]
) -> Iterator[tuple[Matrix, NDArray[Any]]]:
    """What of an adapter goes where in its pages; nothing if it has nothing of the section."""
    if (pair := adapter.pairs.get(section.name)) is not None:
        yield from _of_pair(pages, section, packed, pair)
    elif (table := adapter.tables.get(section.name)) is not None:
        [(first, end)] = section.taken_outputs
        for rows, part in _parts(pages, packed.a, section.width, section.depth):
            yield table[first:end][rows], part


def _placed(adapter: Adapter, section: Section, placing: Placing) -> PackedSection:
    if section.name in adapter.tables:
        return PackedSection(1, 1.0, placing.place(section.width, section.depth))
    if (pair := adapter.pairs.get(section.name)) is None:
        return PackedSection()
    (rows, columns), _ = _shapes(section, pair.rank)
    a = placing.place(rows, columns)
    return PackedSection(pair.rank, pair.scale, a, placing.place(pair.rank, section.width))


def _shapes(section: Section, rank: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Of A and B in device memory."""
    if section.kind == "embedding":
        return (section.depth, rank), (rank, section.width)
    return (rank, section.depth), (rank, section.width)


def _of_pair(
    pages: NDArray[Any], section: Section, packed: PackedSection, pair: Pair
) -> Iterator[tuple[Matrix, NDArray[Any]]]:
    first, end = section.taken_inputs
    (many, columns), _ = _shapes(section, packed.rank)
    a = pair.a[:, first:end]
    for rows, part in _parts(pages, packed.a, many, columns):
        yield a.T[rows] if section.kind == "embedding" else a[rows], part
    for rows, part in _parts(pages, packed.b, packed.rank, section.width):
        column = 0
        for start, stop in section.taken_outputs:
            yield pair.b[start:stop, rows].T, part[:, column : column + stop - start]
            column += stop - start


def _check(
    pages: NDArray[Any],
    section: Section,
    packed: PackedSection,
    given: Set[np.dtype[Any]],
    dtype: torch.dtype,
) -> None:
    """Numbers become infinite only in a type of a smaller range."""
    if dtype != torch.float16 and np.dtype(np.float64) not in given:
        return
    if section.kind == "table":
        matrices = [(packed.a, (section.width, section.depth))]
    else:
        a, b = _shapes(section, packed.rank)
        matrices = [(packed.a, a), (packed.b, b)]
    for start, (rows, columns) in matrices:
        for _, part in _parts(pages, start, rows, columns):
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
    else:
        convert(matrix, to, max(1, FEW // matrix.shape[1]))


def convert(numbers: NDArray[Any], to: NDArray[Any], at_once: int = FEW) -> None:
    """Converts the type; uint16 are the bits of bfloat16.

    Args:
        at_once: rows, or numbers of an array with one dimension
    """
    # Torch converts to and from bfloat16 in one pass. It computes so few numbers in one thread.
    given, made = (torch.split(numbers_of(each), at_once) for each in (numbers, to))
    for part, its in zip(given, made, strict=True):
        its.copy_(part)


def numbers_of(matrix: NDArray[Any]) -> Tensor:
    """The same memory for torch; uint16 are the bits of bfloat16."""
    tensor = torch.from_numpy(matrix)
    return tensor.view(torch.bfloat16) if matrix.dtype == np.uint16 else tensor
