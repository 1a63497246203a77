"""`Layout`: which matrices an adapter may have, as one rank holds them, and where they are.

Device memory is a number of pages of equal size: RANK_PAGE ranks of every linear layer. An adapter
takes as many pages as its own matrices fill, one behind the other. A matrix is stored row by row,
and no row goes on in another page: A has a row for each rank, and so has B, which is transposed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pando_worker.adapters.info import RANK_PAGE

Span = tuple[int, int]
"""The first index, and the one after the last."""

_ALIGNED = 16  # numbers; every matrix begins with a cache line


@dataclass(frozen=True, slots=True)
class Section:
    """A linear layer of the checkpoint.

    Attributes:
        name: in the checkpoint, without ".weight"
        inputs, outputs: of the whole layer
        taken_inputs: this rank's
        taken_outputs: this rank's, in the order of its layer's outputs
        first_output: the place of the first in the layer that computes it with others
    """

    name: str
    inputs: int
    outputs: int
    taken_inputs: Span
    taken_outputs: tuple[Span, ...]
    first_output: int

    @property
    def width(self) -> int:
        """This rank's outputs."""
        return sum(end - first for first, end in self.taken_outputs)

    @property
    def depth(self) -> int:
        """This rank's inputs."""
        return self.taken_inputs[1] - self.taken_inputs[0]


@dataclass(frozen=True, slots=True)
class Layout:
    """The sections of a model; a layer's are neighbours."""

    sections: tuple[Section, ...]

    def __iter__(self) -> Iterator[Section]:
        return iter(self.sections)

    @property
    def page_numbers(self) -> int:
        """How many numbers a page has."""
        of_a_rank = sum(section.depth + section.width for section in self.sections)
        return -(-RANK_PAGE * of_a_rank // _ALIGNED) * _ALIGNED


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a matrix that are in one page."""

    page: int  # of the adapter's
    place: int  # of the first row in the page
    first: int  # which row of the matrix it is
    rows: int


def pieces(start: int, rows: int, columns: int, page_numbers: int) -> Iterator[Piece]:
    """Where a matrix is that begins at `start`, counted from the adapter's first page."""
    page, place = divmod(start, page_numbers)
    first = 0
    while first < rows:
        count = min(rows - first, (page_numbers - place) // columns)
        if count:
            yield Piece(page, place, first, count)
        first, page, place = first + count, page + 1, 0


class Placing:
    """Places one matrix behind the other."""

    def __init__(self, page_numbers: int) -> None:
        self._page_numbers = page_numbers
        self._end = 0

    def place(self, rows: int, columns: int) -> int:
        """The start of another matrix."""
        start = -(-self._end // _ALIGNED) * _ALIGNED
        *_, last = pieces(start, rows, columns, self._page_numbers)
        self._end = last.page * self._page_numbers + last.place + last.rows * columns
        return start

    @property
    def pages(self) -> int:
        """How many pages are needed."""
        return -(-self._end // self._page_numbers)
