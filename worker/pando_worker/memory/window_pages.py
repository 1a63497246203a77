"""`WindowPages`: pages for the layers with a sliding window, released behind it.

Such layers have their own KV pool, in pages of the same size with their own numbers. A window page
belongs to one page of the other layers, and holds the window layers' keys and values of the same
tokens: it is freed with that page, or earlier, when no running request has it within its window any
more.

    pages of a request    0 ....... window_first ....... window_end ....... num_pages
                          behind its window:    pinned: its next      not computed
                          released, or kept     step reads them       yet: none
                          until room is needed

Pinned pages have a window page. Unpinned pages of a cached prefix keep theirs until room is needed;
then the least recently used are released. `window_sight.py` computes which pages a request attends
to; the host's window pages belong to host pages in the same way.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pando_worker.memory.page_allocator import PageAllocator, Pages

# The share of all window pages that is released at once when one is needed, since finding the
# oldest scans every page.
EVICTED_AT_ONCE = 1 / 32


class WindowPages:
    """
    Attributes:
        allocator: the free window pages
        window_of: [num_pages], the window page of each page, or -1
        pins: [num_pages], running requests whose next step reads the page
        used: [num_pages], when it was last unpinned, in calls
        num_pinned: pages that are pinned
        on_release: called with window pages before they are freed
    """

    def __init__(self, num_window_pages: int, num_pages: int) -> None:
        """
        Args:
            num_pages: of the other layers.
        """
        self.allocator = PageAllocator(num_window_pages)
        self.window_of: Pages = np.full(num_pages, -1, dtype=np.int32)
        self.pins: NDArray[np.int32] = np.zeros(num_pages, dtype=np.int32)
        self.used: NDArray[np.int64] = np.zeros(num_pages, dtype=np.int64)
        self.num_pinned = 0
        self.on_release: Callable[[Pages], None] | None = None
        self._now = 0

    @property
    def available(self) -> int:
        """Window pages that are free or can be released without retracting a request."""
        return self.allocator.num_pages - self.num_pinned

    @property
    def num_cached(self) -> int:
        """Window pages that are not pinned."""
        return self.available - self.allocator.num_free

    @property
    def num_lost(self) -> int:
        """Window pages that are neither free nor owned by exactly one page: 0 unless there is a
        bug."""
        held = self.window_of[self.window_of >= 0]
        distinct = len(np.unique(held))
        lost = self.allocator.num_pages - self.allocator.num_free - distinct
        return abs(lost) + len(held) - distinct

    def has(self, pages: Pages) -> NDArray[np.bool_]:
        """Which of these pages have a window page; -1 stands for no page."""
        return (pages >= 0) & (self.window_of[pages] >= 0)

    def num_unpinned(self, pages: Pages) -> int:
        return int(np.count_nonzero(self.pins[pages] == 0))

    # Pin

    def pin(self, pages: Pages) -> None:
        """Pin these pages, which have window pages, for one more request."""
        assert (self.window_of[pages] >= 0).all(), "a page within the window has been released"
        self.num_pinned += self.num_unpinned(pages)
        self.pins[pages] += 1

    def unpin(self, pages: Pages) -> None:
        """Unpin these pages for one request, or as often as they are listed; pages that are no
        longer pinned count as just used."""
        self._now += 1
        self.used[pages] = self._now
        np.subtract.at(self.pins, pages, 1)
        self.num_pinned -= len(np.unique(pages[self.pins[pages] == 0]))

    def grow(self, pages: Pages) -> None:
        """Allocate and pin window pages for pages that are computed next.

        Raises:
            MemoryError: more than `available` are needed.
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
        """Release the window pages of those of these pages that have one.

        Raises:
            ValueError: one of them is pinned.
        """
        if self.pins[pages].any():
            raise ValueError(f"pages in use: {pages[self.pins[pages] > 0].tolist()}")
        held = self.window_of[pages]
        held = held[held >= 0]
        if self.on_release:
            self.on_release(held)
        self.allocator.free(held)
        self.window_of[pages] = -1

    def move(self, pages: Pages, to: Pages) -> None:
        """Move window pages to other pages of the same tokens that lack theirs; the old ones are
        not pinned."""
        assert not self.pins[pages].any()
        lacks = (self.window_of[pages] >= 0) & (self.window_of[to] < 0)
        pages, to = pages[lacks], to[lacks]
        self.window_of[to] = self.window_of[pages]
        self.used[to] = self.used[pages]
        self.window_of[pages] = -1

    def _evict(self, count: int) -> None:
        """Release at least `count` unpinned window pages, the least recently used first."""
        idle = np.flatnonzero((self.window_of >= 0) & (self.pins == 0)).astype(np.int32)
        count = max(count, int(self.allocator.num_pages * EVICTED_AT_ONCE))
        if count < len(idle):
            idle = idle[np.argpartition(self.used[idle], count)[:count]]
        self.drop(idle)

    def check_idle(self) -> None:
        """Check, with no request admitted, that nothing is pinned and that no window page leaked.

        Raises:
            RuntimeError: window pages leaked.
        """
        if (lost := self.num_lost) or self.num_pinned or self.pins.any():
            raise RuntimeError(
                f"idle, but of {self.allocator.num_pages} window pages {lost} are neither free nor"
                f" held, {self.num_pinned} pages are pinned, by {int(self.pins.sum())} requests"
            )
