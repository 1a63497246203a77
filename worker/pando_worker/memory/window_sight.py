"""`WindowSight`: computes which of its pages a request attends to through a sliding window.

The widest window of the model's layers counts, because the layers share their window pages.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowMemory:
    """The size of the window layers' pool, and what it must hold."""

    pages: int
    window: int  # keys that a query attends to, its own included; the widest of the layers
    chunk_tokens: int  # most prompt tokens that a request runs in one step


class WindowSight:
    def __init__(self, memory: WindowMemory, page_size: int) -> None:
        """
        Raises:
            ValueError: a request could not run even alone.
        """
        self._window = memory.window
        self._page_size = page_size
        self._chunk_pages = -(-memory.chunk_tokens // page_size)
        # Pages that a long request keeps between two steps.
        self._kept = -(-(memory.window - 1) // page_size) + 1
        if memory.pages <= self._kept:
            raise ValueError(
                f"{memory.pages} window pages of {page_size} tokens cannot hold a window of"
                f" {memory.window} tokens and one more page"
            )

    def first_seen(self, pages: int) -> int:
        """The first page that the token after this many pages attends to."""
        return max(0, pages * self._page_size + 1 - self._window) // self._page_size

    def first_kept(self, tokens: int) -> int:
        """The first page that a request keeps, once launched steps have run its first `tokens`.

        This may be one page more than its next step reads: if the request ends now, it leaves only
        whole pages in the cache, and a request that continues from there reads a page more.
        """
        return int(self.all_first_kept(np.array(tokens)))

    def all_first_kept(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same for many requests."""
        size = self._page_size
        seen: NDArray[np.int64] = (tokens - 1) // size * size + 1 - self._window
        return np.maximum(0, seen) // size

    def most(self, tokens: int, extend_len: int) -> int:
        """The most window pages that a request needs at once.

        Args:
            tokens: its final number of tokens
            extend_len: how many of these it runs next, in chunks if need be
        """
        step = min(-(-extend_len // self._page_size), self._chunk_pages)
        return min(-(-tokens // self._page_size), self._kept + step)

    def all_most(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same for many requests that run one token in a step."""
        return np.minimum(-(-tokens // self._page_size), self._kept + 1)

    def usable(self, present: NDArray[np.bool_]) -> int:
        """The longest part of a prefix, in pages, that a request can continue from because all
        window pages that it would then read are present.

        Args:
            present: [n], which of a cached prefix's pages have a window page, in order
        """
        counts = np.arange(1, len(present) + 1)
        # For each prefix, the start of the run of present pages that it ends in.
        runs = np.maximum.accumulate(np.where(present, 0, counts))
        firsts = np.maximum(counts * self._page_size + 1 - self._window, 0) // self._page_size
        good = np.flatnonzero(runs <= firsts)
        return int(counts[good[-1]]) if len(good) else 0
