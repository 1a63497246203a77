"""`HostWindows`: window pages that the host keeps, and the copies of them to make.

Where layers with a window have pages of their own, a page goes to the host with its window page, if
it has one then, and comes back with it if the request that continues from there sees it. On the
host, too, a window page belongs to one page, goes with it at the latest, and earlier where others
need the room. The copies follow the rules of `host_tier.py`.
"""

import numpy as np

from pando_worker.batch import PageCopies
from pando_worker.memory.copy_queue import CopyQueue
from pando_worker.memory.page_allocator import Pages
from pando_worker.memory.window_pages import WindowPages


class HostWindows:
    """
    Attributes:
        kept: window pages of the host, by host page; pinned while a queued load reads them
    """

    def __init__(self, num_window_pages: int, num_host_pages: int, device: WindowPages) -> None:
        self.kept = WindowPages(num_window_pages, num_host_pages)
        self._device = device
        self._stores = CopyQueue(num_window_pages, to_host=True)
        self._loads = CopyQueue(device.allocator.num_pages, to_host=False)
        self.kept.on_release = self._stores.cancel
        device.on_release = self._loads.cancel

    def store(self, host_pages: Pages, pages: Pages) -> None:
        """Keep the window pages that these pages of the device have and these of the host lack;
        where there is no room for all, those of the last."""
        missing = self._device.has(pages) & ~self.kept.has(host_pages)
        host_pages, pages = host_pages[missing], pages[missing]
        start = max(0, len(pages) - self.kept.available)
        host_pages, pages = host_pages[start:], pages[start:]
        if len(pages):
            self.kept.grow(host_pages)
            self.kept.unpin(host_pages)
            self._stores.add(self.kept.window_of[host_pages], self._device.window_of[pages])

    def hold(self, host_pages: Pages) -> None:
        """Keep what these have until the next batch; `load` may follow."""
        self.kept.pin(host_pages[self.kept.has(host_pages) & (self.kept.pins[host_pages] == 0)])

    def let_go(self, host_pages: Pages) -> None:
        """Undo `hold`, where it was called."""
        self.kept.unpin(host_pages[self.kept.pins[host_pages] > 0])

    def load(self, pages: Pages, host_pages: Pages) -> None:
        """Copy the window pages of the host's pages, which are held, to those of the device's."""
        self._loads.add(self._device.window_of[pages], self.kept.window_of[host_pages])

    def take_copies(self) -> tuple[PageCopies | None, PageCopies | None]:
        """Stores and loads for the batch that is about to be launched."""
        if self.kept.num_pinned:
            self.kept.unpin(np.flatnonzero(self.kept.pins).astype(np.int32))
        return self._stores.take(), self._loads.take()
