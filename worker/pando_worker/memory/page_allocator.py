"""The free list of the KV pool: allocates and frees pages of `page_size` token slots."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

# Page numbers; page p has the slots p * page_size to (p + 1) * page_size - 1.
Pages = NDArray[np.int32]


class PageAllocator:
    """A stack of free pages, so that pages freed last, still warm in the caches, are reused
    first."""

    def __init__(self, num_pages: int, on_free: Callable[[Pages], None] | None = None) -> None:
        """
        Args:
            on_free: called with pages before they are freed.
        """
        self.num_pages = num_pages
        self._on_free = on_free
        # numpy's own index type, which indexes without a conversion.
        self._stack = np.arange(num_pages - 1, -1, -1, dtype=np.intp)
        self._is_free = np.ones(num_pages, dtype=np.bool_)
        self.num_free = num_pages

    @property
    def num_twice(self) -> int:
        """Pages that are on the stack more than once: 0 unless there is a bug. Scans the pool."""
        return self.num_free - int(np.count_nonzero(self._is_free))

    def alloc(self, count: int) -> Pages:
        """Allocate `count` pages, [count].

        Raises:
            MemoryError: fewer are free. Callers evict first, so this is a bug.
        """
        if count > self.num_free:
            raise MemoryError(f"{count} pages requested, {self.num_free} of {self.num_pages} free")
        self.num_free -= count
        index = self._stack[self.num_free : self.num_free + count]
        self._is_free[index] = False
        return index.astype(np.int32)

    def free(self, *parts: Pages) -> None:
        """Free pages; one call for all is faster than one per part.

        Raises:
            ValueError: one of them is already free, so two owners claimed it; nothing was changed.
                A page that is listed twice is not noticed here, since the search would double the
                cost of evictions; `num_twice` finds it.
        """
        count = sum(map(len, parts))
        if count == 0:
            return
        taken = self.num_pages - self.num_free
        if count > taken:
            raise ValueError(f"pages freed twice: {count}, and only {taken} were taken")
        index = self._stack[self.num_free : self.num_free + count]
        np.concatenate(parts, out=index)
        free_already = self._is_free[index]
        if np.count_nonzero(free_already):
            raise ValueError(f"pages freed twice: {index[free_already].tolist()}")
        if self._on_free:
            self._on_free(index.astype(np.int32))
        self._is_free[index] = True
        self.num_free += count
