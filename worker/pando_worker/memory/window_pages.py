"""`WindowPages`: pages for the layers that see only a window, released behind it.

Such layers have a KV pool of their own, in pages of the same size with their own numbers. A window
page belongs to one page of the other layers, and holds the window layers' keys and values of the
same tokens: when that page is freed, so is its window page. It may go earlier, when no request that
runs has it within its window any more.

    pages of a request    0 ....... window_first ....... window_end ....... num_pages
                          behind its window:    pinned: its next      not computed
                          released, or kept     step sees them        yet: none
                          until there is need

Pages that are pinned have a window page. Of the others, those that a cached prefix may be continued
from keep theirs until somebody needs room; then the least recently used go.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pando_worker.memory.page_allocator import PageAllocator, Pages

# Of all window pages, the share that is released at once where one is needed: finding the oldest
# takes a look at every page.
EVICTED_AT_ONCE = 1 / 32


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowMemory:
    """What window layers have to work with."""

    pages: int
    window: int  # keys that a query sees, its own included; the widest of the layers
    chunk_tokens: int  # most that a prompt runs in one step


class WindowPages:
    """
    Attributes:
        allocator: the free window pages
        window_of: [num_pages], the window page of each page, or -1
        pins: [num_pages], running requests whose next step sees the page
        used: [num_pages], when it was last unpinned, counted in calls
        num_pinned: pages that are pinned
    """

    def __init__(self, memory: WindowMemory, num_pages: int, page_size: int) -> None:
        """
        Args:
            num_pages: of the other layers.

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
        self.allocator = PageAllocator(memory.pages)
        self.window_of: Pages = np.full(num_pages, -1, dtype=np.int32)
        self.pins: NDArray[np.int32] = np.zeros(num_pages, dtype=np.int32)
        self.used: NDArray[np.int64] = np.zeros(num_pages, dtype=np.int64)
        self.num_pinned = 0
        self._now = 0

    @property
    def available(self) -> int:
        """Window pages to be had without taking any from a request."""
        return self.allocator.num_pages - self.num_pinned

    @property
    def num_cached(self) -> int:
        """Window pages that nobody pins."""
        return self.available - self.allocator.num_free

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

    def usable(self, pages: Pages) -> int:
        """How many of a prefix's pages a request can continue from: the most such that all window
        pages are there which it would then see.

        Args:
            pages: [n], of a cached prefix, in order
        """
        counts = np.arange(1, len(pages) + 1)
        # Of each prefix, the start of the run of present pages in which it ends.
        runs = np.maximum.accumulate(np.where(self.window_of[pages] < 0, counts, 0))
        firsts = np.maximum(counts * self._page_size + 1 - self._window, 0) // self._page_size
        good = np.flatnonzero(runs <= firsts)
        return int(counts[good[-1]]) if len(good) else 0

    def num_unpinned(self, pages: Pages) -> int:
        return int(np.count_nonzero(self.pins[pages] == 0))

    # Pin

    def pin(self, pages: Pages) -> None:
        """One more request sees these pages, which have window pages."""
        assert (self.window_of[pages] >= 0).all(), "a page within the window has been released"
        self.num_pinned += self.num_unpinned(pages)
        self.pins[pages] += 1

    def unpin(self, pages: Pages) -> None:
        """One request less sees them, or as many as name them here; what nobody sees now counts as
        just used."""
        self._now += 1
        self.used[pages] = self._now
        np.subtract.at(self.pins, pages, 1)
        self.num_pinned -= len(np.unique(pages[self.pins[pages] == 0]))

    def grow(self, pages: Pages) -> None:
        """Give pages that are to be computed next their window pages, and pin them.

        Raises:
            MemoryError: they are more than `available`.
        """
        assert (self.window_of[pages] < 0).all(), "a page that is not computed has a window page"
        shortage = len(pages) - self.allocator.num_free
        if shortage > 0:
            self._evict(shortage)
        self.window_of[pages] = self.allocator.alloc(len(pages))
        self.pins[pages] = 1
        self.num_pinned += len(pages)

    # Release

    def drop(self, pages: Pages) -> None:
        """Release the window pages of these, as far as they have any.

        Raises:
            ValueError: a request sees one of them.
        """
        if self.pins[pages].any():
            raise ValueError(f"pages in use: {pages[self.pins[pages] > 0].tolist()}")
        held = self.window_of[pages]
        self.allocator.free(held[held >= 0])
        self.window_of[pages] = -1

    def move(self, pages: Pages, to: Pages) -> None:
        """Hand window pages over to other pages of the same tokens that lack theirs; nobody sees
        the old ones."""
        assert not self.pins[pages].any()
        lacks = (self.window_of[pages] >= 0) & (self.window_of[to] < 0)
        pages, to = pages[lacks], to[lacks]
        self.window_of[to] = self.window_of[pages]
        self.used[to] = self.used[pages]
        self.window_of[pages] = -1

    def _evict(self, count: int) -> None:
        """Release at least `count` window pages that nobody sees, least recently used first."""
        idle = np.flatnonzero((self.window_of >= 0) & (self.pins == 0)).astype(np.int32)
        count = max(count, int(self.allocator.num_pages * EVICTED_AT_ONCE))
        if count < len(idle):
            idle = idle[np.argpartition(self.used[idle], count)[:count]]
        self.drop(idle)

    def check_idle(self) -> None:
        """With no request admitted no page is pinned, and each window page is free or has its page.

        Raises:
            RuntimeError: window pages were lost.
        """
        held = self.window_of[self.window_of >= 0]
        lost = self.allocator.num_pages - self.allocator.num_free - len(np.unique(held))
        if lost or len(np.unique(held)) < len(held) or self.num_pinned or self.pins.any():
            raise RuntimeError(
                f"idle, but of {self.allocator.num_pages} window pages {lost} are neither free nor"
                f" held, {self.num_pinned} pages are pinned, by {int(self.pins.sum())} requests"
            )
