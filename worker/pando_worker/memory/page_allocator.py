"""The free list of the KV pool: hands out pages of `page_size` token slots and takes them back."""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

# Page numbers: page p holds the slots p * page_size to (p + 1) * page_size - 1.
Pages = NDArray[np.int32]

LONG = 256  # pages; shorter runs are not worth a slice


class PageAllocator:
    """A stack of free pages, so pages released last, still warm in the caches, are reused first."""

    def __init__(self, num_pages: int, on_free: Callable[[Pages], None] | None = None) -> None:
        """
        Args:
            on_free: told of pages before they are free.
        """
        self.num_pages = num_pages
        self._on_free = on_free
        self._stack: Pages = np.arange(num_pages - 1, -1, -1, dtype=np.int32)
        self._is_free = np.ones(num_pages, dtype=np.bool_)
        self.num_free = num_pages

    def alloc(self, count: int) -> Pages:
        """Take `count` pages, `[count]`.

        Raises:
            MemoryError: fewer are free. Callers evict first, so this is a bookkeeping bug.
        """
        if count > self.num_free:
            raise MemoryError(f"{count} pages wanted, {self.num_free} of {self.num_pages} are free")
        self.num_free -= count
        pages = self._stack[self.num_free : self.num_free + count].copy()
        for part in _parts(pages):
            self._is_free[part] = False
        return pages

    def free(self, pages: Pages) -> None:
        """Give pages back.

        Raises:
            ValueError: one of them is free already: two owners thought it theirs.
        """
        count = len(pages)
        if count == 0:
            return
        parts = _parts(pages)
        if any(self._is_free[part].any() for part in parts):
            raise ValueError(f"pages freed twice: {pages[self._is_free[pages]].tolist()}")
        if self._on_free:
            self._on_free(pages)
        for part in parts:
            self._is_free[part] = True
        self._stack[self.num_free : self.num_free + count] = pages
        self.num_free += count


def _parts(pages: Pages) -> Iterable[Pages | slice]:
    """What selects these pages in an array of all.

    A stack keeps runs of pages together, and slices are fast: 100,000 pages in a few runs are
    marked in 0.1 instead of 0.6 ms.
    """
    if len(pages) < LONG:
        return (pages,)
    ends = (np.flatnonzero(pages[:-1] - pages[1:] != 1) + 1).tolist()
    if len(ends) > len(pages) // LONG:
        return (pages,)
    bounds = zip([0, *ends], [*ends, len(pages)], strict=True)
    return [slice(int(pages[end - 1]), int(pages[start]) + 1) for start, end in bounds]
