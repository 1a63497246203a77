"""`Layout`: which matrices an adapter may have, as one rank holds them, and where they are.

Device memory is a number of pages of equal size: RANK_PAGE ranks of every linear layer outside
experts. An adapter takes as many pages as its own matrices fill, one behind the other. A matrix is
stored row by row, and no row goes on in another page: A has a row for each rank, and so has B,
which is transposed. An embedding's A has a row for each token, and so has a whole table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pando_worker.adapters.info import RANK_PAGE

Span = tuple[int, int]
"""The first index, and the one after the last."""

Kind = Literal["linear", "router", "expert", "embedding", "head", "table"]
"""What a section belongs to. A table is the whole embedding or head, which an adapter replaces."""

_IN_PAGES: tuple[Kind, ...] = ("linear", "router")  # whose sizes give a page's

_ALIGNED = 16  # numbers; every matrix begins with a cache line


@dataclass(frozen=True, slots=True)
class Section:
    """A linear layer of the checkpoint, or an expert's, or a table of the vocabulary.

    Attributes:
        name: in the checkpoint, without ".weight"; with it for a whole table
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
    kind: Kind = "linear"

    @property
    def is_linear(self) -> bool:
        """Whether recorded steps compute it. A step with an adapter that has more runs without."""
        return self.kind in _IN_PAGES

    @property
    def longest_row(self) -> int:
        """Of its matrices; an embedding's A has rows of one number for each rank."""
        if self.kind == "table":
            return self.depth
        return self.width if self.kind == "embedding" else max(self.depth, self.width)

    @property
    def width(self) -> int:
        """This rank's outputs."""
        return sum(end - first for first, end in self.taken_outputs)

    @property
    def depth(self) -> int:
        """This rank's inputs."""
        return self.taken_inputs[1] - self.taken_inputs[0]


@dataclass(frozen=True, slots=True)
class ExpertLayer:
    """The sections of one layer's experts, which checkpoints may also have as two parameters.

    Attributes:
        module: that has the parameters in transformers
        gate_up: the names of each expert's sections, which have the parts of its first projection
            in this order
        down: of each expert
    """

    module: str
    gate_up: tuple[tuple[str, ...], ...]
    down: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """The sections of a model; a layer's are neighbours.

    Attributes:
        experts: layers of experts
        renamed: sections by the names that transformers has for them, where these differ
        tied: whether the embedding is also the head
    """

    sections: tuple[Section, ...]
    experts: tuple[ExpertLayer, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    tied: bool = False

    def __iter__(self) -> Iterator[Section]:
        return iter(self.sections)

    @property
    def page_numbers(self) -> int:
        """How many numbers a page has."""
        of_a_rank = sum(each.depth + each.width for each in self.sections if each.is_linear)
        longest = max(each.longest_row for each in self.sections)
        return -(-max(RANK_PAGE * of_a_rank, longest) // _ALIGNED) * _ALIGNED


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
