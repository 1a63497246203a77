"""Matrices of small integers: their groups and their memory layout.

A group is a run of a row's numbers that share a scale, and possibly a minimum:

    number = scale * integer + minimum        with minimums,
    number = scale * (integer - zero)         without; zero is half of the range.

In memory, 16 rows form a tile, and a tile stores its columns in runs of 32. Each run has four
columns of the first row, four of the second, and so on, then the next four columns of the first.
The kernels read this layout (cpu/native/grouped.h).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

LANES = 16  # rows of a tile
RUN = 32  # columns
_FOUR = 4  # columns of a row side by side


@dataclass(frozen=True, slots=True)
class Grouping:
    """
    Attributes:
        bits: size of an integer in memory
        group: columns per group
        numbers: type of scales and minimums
        minimums: whether groups have minimums
    """

    bits: Literal[4, 8]
    group: Literal[16, 32]
    numbers: torch.dtype
    minimums: bool

    @property
    def zero(self) -> int:
        return 1 << (self.bits - 1)

    def groups(self, columns: int) -> int:
        """Of a row."""
        return _runs(columns) * RUN // self.group


class Integers(NamedTuple):
    """Rows of a matrix, not packed.

    values: uint8 [rows, columns], one per byte
    scales: float32 [rows, groups]
    minimums: the same, or None
    """

    values: Tensor
    scales: Tensor
    minimums: Tensor | None

    def columns(self, part: slice, group: int) -> "Integers":
        """Some columns, which begin and end at group boundaries."""
        groups = slice(part.start // group, -(-part.stop // group))
        minimums = None if self.minimums is None else self.minimums[:, groups]
        return Integers(self.values[:, part], self.scales[:, groups], minimums)


@dataclass(frozen=True, slots=True)
class Groups:
    """A matrix [rows, columns] in memory.

    Attributes:
        values: uint8 [tiles, runs, 16 * 32 * bits / 8]
        scales: [tiles, groups, 16]
        minimums: the same, or None
    """

    grouping: Grouping
    rows: int
    columns: int
    values: Tensor
    scales: Tensor
    minimums: Tensor | None

    def put(self, first: int, part: Integers) -> None:
        """Write rows from `first`, the start of a tile. They end with a tile or with the matrix."""
        tiles = slice(first // LANES, -(-(first + len(part.values)) // LANES))
        self.values[tiles] = pack(part.values, self.grouping.bits)
        self.scales[tiles] = _by_tile(part.scales).to(self.scales.dtype)
        if self.minimums is not None:
            assert part.minimums is not None
            self.minimums[tiles] = _by_tile(part.minimums).to(self.scales.dtype)

    def decoded(self, first: int = 0, end: int | None = None) -> Tensor:
        """Rows from `first`, the start of a tile, to `end`, as float32."""
        end = self.rows if end is None else end
        tiles = slice(first // LANES, -(-end // LANES))
        values = unpack(self.values[tiles], self.grouping.bits).float()
        scales = _by_row(self.scales[tiles])
        grouped = values.view(*scales.shape, -1)
        if self.minimums is None:
            numbers = (grouped - self.grouping.zero) * scales[..., None]
        else:
            numbers = grouped * scales[..., None] + _by_row(self.minimums[tiles])[..., None]
        return numbers.view(values.shape)[: end - first, : self.columns]


def shapes(grouping: Grouping, rows: int, columns: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of `values`, and that of `scales` and `minimums`."""
    tiles = -(-rows // LANES)
    bytes_of_run = LANES * RUN * grouping.bits // 8
    return (tiles, _runs(columns), bytes_of_run), (tiles, grouping.groups(columns), LANES)


def pack(values: Tensor, bits: int) -> Tensor:
    """Pack integers [rows, columns] to uint8 [tiles, runs, bytes]; zeros pad tiles and runs."""
    rows, columns = values.shape
    tiles, runs = -(-rows // LANES), _runs(columns)
    if (rows, columns) != (tiles * LANES, runs * RUN):
        padded = values.new_zeros(tiles * LANES, runs * RUN)
        padded[:rows, :columns] = values
        values = padded
    values = values.view(tiles, LANES, runs, RUN)
    if bits == 4:
        low, high = values.chunk(2, dim=-1)
        values = low | high << 4
    fours = values.view(tiles, LANES, runs, -1, _FOUR)
    return fours.permute(0, 2, 3, 1, 4).reshape(tiles, runs, -1)


def unpack(packed: Tensor, bits: int) -> Tensor:
    """The integers of whole tiles and runs, [rows, columns], padding included."""
    tiles, runs, _ = packed.shape
    fours = packed.view(tiles, runs, -1, LANES, _FOUR).permute(0, 3, 1, 2, 4)
    values = fours.reshape(tiles * LANES, runs, -1)
    if bits == 4:
        values = torch.cat((values & 15, values >> 4), dim=-1)
    return values.view(tiles * LANES, -1)


def _runs(columns: int) -> int:
    return -(-columns // RUN)


def _by_tile(numbers: Tensor) -> Tensor:
    """[rows, groups] to [tiles, groups, lanes]"""
    rows, groups = numbers.shape
    tiles = -(-rows // LANES)
    padded = numbers.new_zeros(tiles * LANES, groups)
    padded[:rows] = numbers
    return padded.view(tiles, LANES, groups).mT


def _by_row(numbers: Tensor) -> Tensor:
    """[tiles, groups, lanes] to [rows, groups], float32"""
    return numbers.float().mT.reshape(-1, numbers.shape[1])
