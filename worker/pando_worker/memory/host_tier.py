"""`HostTier`: which nodes of the prefix tree have pages in host memory, and the pending copies.

It owns only the page numbers; the pages themselves are in `runner/kv/host_pages.py`. Copies run
with the next `ForwardBatch`: first stores (device to host), then loads (host to device), then the
model. Until `take_copies` returns a copy, it is only queued:

- A device page whose store is queued may be reused at once: whatever overwrites it runs later.
- A host page that a queued load reads may not be reused: a store into it would run first.
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
    """Whether copying a token's keys and values `copies` times is faster than computing them again.

    Compares seconds per token. A rate of 0 is not known yet; then copying is tried, which measures
    it.
    """
    if copy_bytes_per_s == 0 or prefill_tokens_per_s == 0:
        return True
    return copies * bytes_per_token / copy_bytes_per_s < 1 / prefill_tokens_per_s


class HostTier:
    """
    Attributes:
        store_hits: hits after which a node is stored (write-through-selective); None: when it is
            evicted from the device (write-back).
        pays: whether that many copies of a token are faster than computing it again
        windows: None if all layers share one pool
        evictable_pages, loading_pages: with the free pages these are all pages
        stored_pages, loaded_pages: copies returned by `take_copies` so far
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
        # Touching a path moves it to the end, deepest first, so a node that is only on the host
        # comes after its descendants: if it is the oldest, it is a leaf.
        self._lru: OrderedDict[TreeNode, None] = OrderedDict()
        self._stores = CopyQueue(num_pages, to_host=True)
        self._loads = CopyQueue(num_device_pages, to_host=False)

    @property
    def held_pages(self) -> int:
        return self.evictable_pages + self.loading_pages

    @property
    def lost_pages(self) -> int:
        """Pages that leaked: 0 unless there is a bug."""
        return self.allocator.num_pages - self.allocator.num_free - self.held_pages

    def oldest(self) -> TreeNode:
        """The least recently used of the nodes that may lose their host pages."""
        return next(iter(self._lru))

    def touch(self, node: TreeNode) -> None:
        if node not in self.loading:
            self._lru.move_to_end(node)

    def store(self, node: TreeNode) -> None:
        """Copy a node from the device to the host, which must have enough free pages."""
        assert node.pages is not None
        assert node.host_pages is None
        node.host_pages = self.allocator.alloc(len(node.pages))
        self.evictable_pages += len(node.host_pages)
        self._stores.add(node.host_pages, node.pages)
        self._lru[node] = None
        if self.windows:
            self.windows.store(node.host_pages, node.pages)

    def begin_load(self, node: TreeNode) -> None:
        """Keep a node's pages until they are copied; call `load`, or load window pages,
        afterwards."""
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
        """Copy a node's host pages to its new pages on the device."""
        assert node.pages is not None
        assert node.host_pages is not None
        self._loads.add(node.pages, node.host_pages)

    def left_device(self, node: TreeNode, pages: Pages) -> None:
        """Note that a node was evicted from the device pages `pages`."""
        self._loads.cancel(pages)
        if self.windows and node.host_pages is not None:
            self.windows.store(node.host_pages, pages)
            self.windows.release(node.host_pages)
        if node in self.loading:
            del self.loading[node]
            self.loading_pages -= len(pages)
            self.evictable_pages += len(pages)
            self._lru[node] = None
        elif node in self._lru:
            self._lru.move_to_end(node)

    def drop(self, node: TreeNode) -> None:
        """Free a node's host pages; it must not be loading."""
        assert node.host_pages is not None
        del self._lru[node]
        self._stores.cancel(node.host_pages)
        self.evictable_pages -= len(node.host_pages)
        self.allocator.free(node.host_pages)
        node.host_pages = None

    def add_upper(self, upper: TreeNode, lower: TreeNode) -> None:
        """Note that a node was split; see `EvictionOrder.add_upper`."""
        if lower in self.loading:
            self.loading[upper] = None
        else:
            self._lru[upper] = None
            self._lru.move_to_end(upper, last=False)

    def take_copies(self) -> tuple[PageCopies | None, PageCopies | None]:
        """Remove and return the stores and loads for the next launched batch."""
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
