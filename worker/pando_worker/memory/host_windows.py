"""`HostWindows`: the window pages in host memory, and their pending copies.

If layers with a sliding window have their own pool, a page is stored on the host with its window
page, if it still has one, and is loaded with it if the request that continues from there attends to
it. On the host, too, a window page belongs to one page; it is freed with that page, or earlier when
others need the room. The copies follow the rules of `host_tier.py`.
"""

import numpy as np

from pando_worker.batch import PageCopies
from pando_worker.memory.copy_queue import CopyQueue
from pando_worker.memory.page_allocator import Pages
from pando_worker.memory.window_pages import WindowPages


class HostWindows:
    """
    Attributes:
        kept: the host's window pages, by host page; pinned while a queued load reads them
    """

    def __init__(self, num_window_pages: int, num_host_pages: int, device: WindowPages) -> None:
        self.kept = WindowPages(num_window_pages, num_host_pages)
        self._device = device
        self._stores = CopyQueue(num_window_pages, to_host=True)
        self._loads = CopyQueue(device.allocator.num_pages, to_host=False)
        self.kept.on_release = self._stores.cancel
        device.on_release = self._loads.cancel

    def store(self, host_pages: Pages, pages: Pages) -> None:
        """Store the window pages that these device pages have and these host pages lack; if there
        is no room for all, those of the last pages."""
        missing = self._device.has(pages) & ~self.kept.has(host_pages)
        host_pages, pages = host_pages[missing], pages[missing]
        start = max(0, len(pages) - self.kept.available)
        host_pages, pages = host_pages[start:], pages[start:]
        if len(pages):
            self.kept.grow(host_pages)
            self.kept.unpin(host_pages)
            self._stores.add(self.kept.window_of[host_pages], self._device.window_of[pages])

    def hold(self, host_pages: Pages) -> None:
        """Keep the window pages of these pages until the next batch; `load` may follow."""
        self.kept.pin(host_pages[self.kept.has(host_pages) & (self.kept.pins[host_pages] == 0)])

    def release(self, host_pages: Pages) -> None:
        """Undo `hold` for those of these pages that are held."""
        self.kept.unpin(host_pages[self.kept.pins[host_pages] > 0])

    def load(self, pages: Pages, host_pages: Pages) -> None:
        """Copy the window pages of these held host pages to those of the device pages."""
        self._loads.add(self._device.window_of[pages], self.kept.window_of[host_pages])

    def take_copies(self) -> tuple[PageCopies | None, PageCopies | None]:
        """Remove and return the stores and loads for the next launched batch."""
        if self.kept.num_pinned:
            self.kept.unpin(np.flatnonzero(self.kept.pins).astype(np.int32))
        return self._stores.take(), self._loads.take()
