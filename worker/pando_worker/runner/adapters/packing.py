"""Brings an adapter into the form of one rank's device memory.

It is made with numpy, in the one thread that asks for it: torch would use the cores that the model
computes on.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.info import RANK_PAGE
from pando_worker.adapters.layout import Layout, Section
from pando_worker.adapters.reading import Adapter, Matrix, Pair
from pando_worker.models.lora import Packed

# bfloat16 as its bits, since numpy has no such type.
_TYPES: dict[torch.dtype, type] = {
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.bfloat16: np.uint16,
}


def num_pages(rank: int) -> int:
    """Of an adapter with this largest rank."""
    return -(-rank // RANK_PAGE)


def pack(adapter: Adapter, layout: Layout, dtype: torch.dtype) -> Packed:
    """
    Raises:
        AdapterError: a number is too large for `dtype`.
    """
    pages: NDArray[Any] = np.empty(
        (num_pages(adapter.rank), layout.page_numbers), dtype=_TYPES[dtype]
    )
    ranks, scales = [], []
    for section in layout:
        pair = adapter.pairs.get(section.name)
        ranks.append(0 if pair is None else pair.rank)
        scales.append(0.0 if pair is None else pair.scale)
        if pair is not None:
            _put(pages, section, pair)
            _check(pages, section, pair, dtype)
    numbers = torch.from_numpy(pages)
    return Packed(numbers.view(dtype), tuple(ranks), tuple(scales))


def _put(pages: NDArray[Any], section: Section, pair: Pair) -> None:
    first, end = section.taken_inputs
    for page, count in enumerate(_counts(pair.rank)):
        rows = slice(page * RANK_PAGE, page * RANK_PAGE + count)
        a, b = _rows(pages[page], section, count)
        _copy(pair.a[rows, first:end], a)
        column = 0
        for start, stop in section.taken_outputs:
            _copy(pair.b[start:stop, rows].T, b[:, column : column + stop - start])
            column += stop - start


def _check(pages: NDArray[Any], section: Section, pair: Pair, dtype: torch.dtype) -> None:
    """Numbers become infinite only in a type of a smaller range."""
    if dtype != torch.float16 and np.float64 not in (pair.a.dtype, pair.b.dtype):
        return
    for page, count in enumerate(_counts(pair.rank)):
        for matrix in _rows(pages[page], section, count):
            if not torch.from_numpy(matrix).view(dtype).isfinite().all():
                raise AdapterError(f"{section.name} has numbers that are too large for {dtype}")


def _counts(rank: int) -> list[int]:
    """Ranks in each page."""
    return [min(RANK_PAGE, rank - first) for first in range(0, rank, RANK_PAGE)]


def _rows(page: NDArray[Any], section: Section, count: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The first rows of a section's A and of its transposed B."""
    a = page[section.a : section.a + count * section.depth]
    b = page[section.b : section.b + count * section.width]
    return a.reshape(count, section.depth), b.reshape(count, section.width)


def _copy(matrix: Matrix, to: NDArray[Any]) -> None:
    """Converts the type; uint16 are the bits of bfloat16."""
    if matrix.dtype == to.dtype:
        to[:] = matrix
        return
    if matrix.dtype == np.uint16:
        matrix = (matrix.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):  # checked afterwards
        if to.dtype != np.uint16:
            to[:] = matrix
            return
        bits = matrix.astype(np.float32).view(np.uint32)
    to[:] = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # to nearest, ties to even
