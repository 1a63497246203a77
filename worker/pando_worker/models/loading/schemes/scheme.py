"""`Scheme`: what a checkpoint's matrix is in memory, where it is not what it is in the file."""

from typing import Protocol

from pando_worker.models.grouped import Grouping, Integers
from pando_worker.models.loading.checkpoint_tensor import Stored


class Scheme(Protocol):
    @property
    def name(self) -> str:
        """For the log."""
        ...

    @property
    def exact(self) -> bool:
        """Whether the integers mean the numbers of the checkpoint, without rounding."""
        ...

    def grouping(self, tensor: Stored, part: tuple[slice, ...], table: bool) -> Grouping | None:
        """Of the integers that a part of a matrix becomes; None: it stays floating-point.

        Args:
            table: it is the embedding, the head, or both

        Raises:
            UnsupportedModel: the part cuts through groups.
        """
        ...

    def integers(self, tensor: Stored, part: tuple[slice, ...], grouping: Grouping) -> Integers:
        """A part of a matrix, in the grouping that was chosen for it."""
        ...
