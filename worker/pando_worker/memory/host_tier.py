"""`HostTier`: which nodes of the prefix tree have pages in host memory, and the copies to make.

It owns the numbers only; the pages themselves are in `host_pages.py`, and the copies travel in the
next `ForwardBatch`, where stores (device to host) run before loads (host to device) and both before
the model. Until `take_copies` hands a copy over it is merely queued:

- A device page whose store is queued may be given away at once: what overwrites it runs later.
- A host page that a queued load reads is not given away: a store into it would run first.
- When the target of a queued copy is freed, the copy is dropped.

A node is in exactly one of two places here: the LRU order, or `loading` until its load is taken.
"""

from collections import OrderedDict
from collections.abc import Callable

from pando_worker.batch import PageCopies
from pando_worker.memory.copy_queue import CopyQueue
from pando_worker.memory.host_windows import HostWindows
from pando_worker.memory.page_allocator import PageAllocator, Pages
from pando_worker.memory.tree_node import TreeNode


def copying_pays(
    copies: int,
    *,
    bytes_per_token: float,
    copy_bytes_per_s: float,
    prefill_tokens_per_s: float,
) -> bool:
    """Whether a token's keys and values are copied so many times faster than computed anew.

    Both sides are seconds a token. A rate of 0 is one that is not known yet; then copying is tried,
    which measures it.
    """
    if copy_bytes_per_s == 0 or prefill_tokens_per_s == 0:
        return True
    return copies * bytes_per_token / copy_bytes_per_s < 1 / prefill_tokens_per_s


class HostTier:
    """
    Attributes:
        store_hits: hits after which a node is stored (write-through-selective); None: when it is
            evicted from the device (write-back).
        pays: whether so many copies of a token beat computing it again
        windows: None where all layers share their pages
        evictable_pages, loading_pages: with the free ones these are all there are
        stored_pages, loaded_pages: copies handed over so far
    """

    def __init__(
        self,
        num_pages: int,
        num_device_pages: int,
        *,
        store_hits: int | None = None,
        pays: Callable[[int], bool] = lambda copies: True,
        windows: HostWindows | None = None,
    ) -> None:
        self.allocator = PageAllocator(num_pages, windows.kept.drop if windows else None)
        self.windows = windows
        self.store_hits = store_hits
        self.pays = pays
        self.evictable_pages = 0
        self.stored_pages = 0
        self.loaded_pages = 0
        self.loading: dict[TreeNode, None] = {}
        self.loading_pages = 0
        # Whoever touches a path moves it to the end, deepest first: a node that is on the host
        # alone stands behind its descendants, so if it is the oldest, it is a leaf.
        self._lru: OrderedDict[TreeNode, None] = OrderedDict()
        self._stores = CopyQueue(num_pages, to_host=True)
        self._loads = CopyQueue(num_device_pages, to_host=False)

    @property
    def held_pages(self) -> int:
        return self.evictable_pages + self.loading_pages

    @property
    def lost_pages(self) -> int:
        """0, unless there is a mistake in the bookkeeping."""
        return self.allocator.num_pages - self.allocator.num_free - self.held_pages

    def oldest(self) -> TreeNode:
        """Of the nodes that may lose their host pages, the one used longest ago."""
        return next(iter(self._lru))

    def touch(self, node: TreeNode) -> None:
        if node not in self.loading:
            self._lru.move_to_end(node)

    def store(self, node: TreeNode) -> None:
        """Give a node on the device a copy here; there have to be enough free pages."""
        assert node.pages is not None
        assert node.host_pages is None
        node.host_pages = self.allocator.alloc(len(node.pages))
        self.evictable_pages += len(node.host_pages)
        self._stores.add(node.host_pages, node.pages)
        self._lru[node] = None
        if self.windows:
            self.windows.store(node.host_pages, node.pages)

    def begin_load(self, node: TreeNode) -> None:
        """Keep a node's pages until they are copied; `load` follows, or a load of window pages."""
        assert node.host_pages is not None
        if node in self.loading:
            return
        if self.windows:
            self.windows.hold(node.host_pages)
        del self._lru[node]
        self.loading[node] = None
        self.evictable_pages -= len(node.host_pages)
        self.loading_pages += len(node.host_pages)

    def load(self, node: TreeNode) -> None:
        """Copy a node's pages to its new ones on the device."""
        assert node.pages is not None
        assert node.host_pages is not None
        self._loads.add(node.pages, node.host_pages)

    def left_device(self, node: TreeNode, pages: Pages) -> None:
        """A node was evicted from the device pages `pages`."""
        self._loads.cancel(pages)
        if self.windows and node.host_pages is not None:
            self.windows.store(node.host_pages, pages)
            self.windows.let_go(node.host_pages)
        if node in self.loading:
            del self.loading[node]
            self.loading_pages -= len(pages)
            self.evictable_pages += len(pages)
            self._lru[node] = None
        elif node in self._lru:
            self._lru.move_to_end(node)

    def drop(self, node: TreeNode) -> None:
        """Free a node's host pages; it is not being loaded."""
        assert node.host_pages is not None
        del self._lru[node]
        self._stores.cancel(node.host_pages)
        self.evictable_pages -= len(node.host_pages)
        self.allocator.free(node.host_pages)
        node.host_pages = None

    def add_upper(self, upper: TreeNode, lower: TreeNode) -> None:
        """A node was split; see `EvictionOrder.add_upper`."""
        if lower in self.loading:
            self.loading[upper] = None
        else:
            self._lru[upper] = None
            self._lru.move_to_end(upper, last=False)

    def take_copies(self) -> tuple[PageCopies | None, PageCopies | None]:
        """Stores and loads for the batch that is about to be launched."""
        for node in self.loading:
            self._lru[node] = None
        self.loading.clear()
        self.evictable_pages += self.loading_pages
        self.loading_pages = 0
        stores = self._stores.take()
        loads = self._loads.take()
        if stores:
            self.stored_pages += len(stores.host)
        if loads:
            self.loaded_pages += len(loads.host)
        return stores, loads
