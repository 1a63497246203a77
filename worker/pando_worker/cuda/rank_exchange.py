"""`RankExchange`: how flashinfer exchanges handles between ranks, with an end if one of them fails.

The library makes a workspace in several steps, with an exchange between them. A rank that fails in
one step would be waited for in the next exchange until the group's time limit. So each exchange
also carries whether its rank still goes on, and a rank that fails takes part once more.
"""

from typing import NamedTuple, TypeVar

from pando_worker.models.parallel import ParallelGroup

T = TypeVar("T")


class _Told(NamedTuple):
    goes_on: bool
    data: object = None


class RankExchange:
    """A `CommBackend` of flashinfer, whose method names these are.

    Every method raises RuntimeError if another rank gave up.
    """

    def __init__(self, group: ParallelGroup) -> None:
        self._group = group
        self._is_over = False

    def Get_rank(self) -> int:  # noqa: N802, the library's name
        return self._group.rank

    def Get_size(self) -> int:  # noqa: N802, the library's name
        return self._group.size

    def allgather(self, data: T) -> tuple[T, ...]:
        parts = self._group.gather(_Told(True, data))
        if not all(part.goes_on for part in parts):
            self._is_over = True
            raise RuntimeError("another rank failed")
        return tuple(part.data for part in parts)  # type: ignore[misc]  # those of T

    def bcast(self, data: T, root: int) -> T:
        return self.allgather(data)[root]

    def barrier(self) -> None:
        self.allgather(None)

    def give_up(self) -> None:
        """Call on a rank that failed: the others fail in their next exchange."""
        if not self._is_over:
            self._is_over = True
            self._group.gather(_Told(False))
