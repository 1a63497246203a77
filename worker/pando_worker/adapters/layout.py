"""`Layout`: where the numbers of an adapter are in device memory, as one rank holds them.

Device memory is a number of pages of equal size. A page has RANK_PAGE ranks of every linear layer:
the layer's A, [RANK_PAGE, inputs], and its B transposed, [RANK_PAGE, outputs]. So an adapter takes
as many pages as its largest rank needs, and a copy of it is a copy of whole pages.
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
        a: place of A in a page, [RANK_PAGE, this rank's inputs]
        b: place of B transposed, [RANK_PAGE, this rank's outputs]
    """

    name: str
    inputs: int
    outputs: int
    taken_inputs: Span
    taken_outputs: tuple[Span, ...]
    first_output: int
    a: int
    b: int

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
    """
    Attributes:
        sections: a layer's are neighbours
        page_numbers: how many numbers a page has
    """

    sections: tuple[Section, ...]
    page_numbers: int

    def __iter__(self) -> Iterator[Section]:
        return iter(self.sections)


class LayoutPlan:
    """Places one matrix after the other."""

    def __init__(self) -> None:
        self._end = 0
        self._sections: list[Section] = []

    def add(
        self,
        name: str,
        *,
        inputs: int,
        outputs: int,
        taken_inputs: Span,
        taken_outputs: tuple[Span, ...],
        first_output: int,
    ) -> Section:
        width = sum(end - first for first, end in taken_outputs)
        a = self._place(taken_inputs[1] - taken_inputs[0])
        b = self._place(width)
        section = Section(name, inputs, outputs, taken_inputs, taken_outputs, first_output, a, b)
        self._sections.append(section)
        return section

    def layout(self) -> Layout:
        return Layout(tuple(self._sections), self._end)

    def _place(self, columns: int) -> int:
        first = self._end
        self._end += -(-RANK_PAGE * columns // _ALIGNED) * _ALIGNED
        return first
