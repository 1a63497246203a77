"""`WindowSight`: which of its pages a request sees through a sliding window, by arithmetic alone.

The widest window of the model's layers counts, for layers share their window pages.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowMemory:
    """What window layers have to work with."""

    pages: int
    window: int  # keys that a query sees, its own included; the widest of the layers
    chunk_tokens: int  # most that a prompt runs in one step


class WindowSight:
    def __init__(self, memory: WindowMemory, page_size: int) -> None:
        """
        Raises:
            ValueError: a request that is alone could not run.
        """
        self._window = memory.window
        self._page_size = page_size
        self._chunk_pages = -(-memory.chunk_tokens // page_size)
        # Of a long request, between two steps.
        self._kept = -(-(memory.window - 1) // page_size) + 1
        if memory.pages <= self._kept:
            raise ValueError(
                f"{memory.pages} window pages of {page_size} tokens do not hold a window of"
                f" {memory.window} and a page besides"
            )

    def first_seen(self, pages: int) -> int:
        """The first page that is seen from the token on that follows so many pages."""
        return max(0, pages * self._page_size + 1 - self._window) // self._page_size

    def first_kept(self, tokens: int) -> int:
        """The first page that a request keeps, once launched steps have run its first `tokens`.

        Not only what its next step sees: if it ends now, it leaves whole pages in the cache, maybe
        without its last token; whoever continues from there sees a page more.
        """
        size = self._page_size
        return max(0, (tokens - 1) // size * size + 1 - self._window) // size

    def most(self, tokens: int, extend_len: int) -> int:
        """Window pages that a request needs at a time.

        Args:
            tokens: that it has in the end
            extend_len: of these, how many it runs next, in chunks if need be
        """
        step = min(-(-extend_len // self._page_size), self._chunk_pages)
        return min(-(-tokens // self._page_size), self._kept + step)

    def usable(self, present: NDArray[np.bool_]) -> int:
        """How many of a prefix's pages a request can continue from: the most such that all window
        pages are there which it would then see.

        Args:
            present: [n], which of a cached prefix's pages have theirs, in order
        """
        counts = np.arange(1, len(present) + 1)
        # Of each prefix, the start of the run of present pages in which it ends.
        runs = np.maximum.accumulate(np.where(present, 0, counts))
        firsts = np.maximum(counts * self._page_size + 1 - self._window, 0) // self._page_size
        good = np.flatnonzero(runs <= firsts)
        return int(counts[good[-1]]) if len(good) else 0
