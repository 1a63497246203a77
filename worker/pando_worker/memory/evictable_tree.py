"""`EvictableTree`: the nodes of the radix cache, whose pages requests lock and evictions free.

Requests lock the path that they use (`lock_ref`); unlocked nodes are evictable, in the order of the
eviction policy, leaves first. Keys are looked up in `radix_cache.py`.

With a host tier, a node evicted from the device may stay in the tree with pages in host memory. If
a node is on the device, so are its ancestors: below a node that is only on the host, all nodes are.
Copies are queued in the `HostTier`, which explains why their order is safe.
"""

from collections.abc import Iterator, Sequence

from pando_worker.memory.ghost_list import GhostList
from pando_worker.memory.host_tier import HostTier
from pando_worker.memory.page_allocator import PageAllocator, Pages
from pando_worker.memory.tree_node import NO_PAGES, NO_TOKENS, TreeNode, TreeWatcher, outline
from pando_worker.policies.eviction import EVICTION_POLICIES
from pando_worker.policies.eviction.order import EvictionOrder

# A full pool evicts at least one page in this many at once; see `evict`.
EVICTED_SHARE = 256


class EvictableTree:
    """Owns the pages of its nodes, and frees them when it evicts.

    Attributes:
        watcher: is notified of every change of the tree
        evicted_pages: pages whose content is neither on the device nor on the host any more
        hot_evicted_tokens: evicted, but requested again soon; see `GhostList`
    """

    def __init__(
        self,
        allocator: PageAllocator,
        page_size: int,
        *,
        enabled: bool = True,
        policy: str = "lru",
        host: HostTier | None = None,
        block_tokens: int = 64,
    ) -> None:
        """
        Args:
            enabled: whether the `KVManager` keeps prefixes here.
            policy: of `EVICTION_POLICIES`.
            block_tokens: size of a block of the ghost list, and of a move to the host.
        """
        self.page_size = page_size
        self.enabled = enabled
        self._allocator = allocator
        self.root = TreeNode(None, NO_TOKENS, 0, b"")
        self.root.pages = NO_PAGES
        self.root.lock_ref = 1  # never evicted
        self._order: EvictionOrder[TreeNode] = EVICTION_POLICIES[policy].make()
        self._host = host
        self.watcher: TreeWatcher | None = None
        held = allocator.num_pages + (host.allocator.num_pages if host else 0)
        self._ghosts = GhostList(held * page_size, page_size, block_tokens)
        self._now = 0
        self._least_evicted = 0 if host else allocator.num_pages // EVICTED_SHARE
        # Device pages that are freed at the end of the operation, all at once.
        self._freed: list[Pages] = []
        self.evictable_pages = 0
        self.protected_pages = 0
        self.evicted_pages = 0
        self.hot_evicted_tokens = 0

    def reset(self) -> None:
        """Drop all prefixes and free their pages.

        Raises:
            RuntimeError: some are locked.
        """
        if self.protected_pages:
            raise RuntimeError(f"the radix cache is in use: {self.pretty_print()}")
        evicted = self.evicted_pages
        for node in self.nodes():
            if node.pages is not None:
                self._order.discard(node)
        for child in list(self.root.children.values()):
            self._remove(child)
        self._release()
        self.evicted_pages = evicted
        self._ghosts.clear()

    # Lock

    def inc_lock_ref(self, node: TreeNode) -> None:
        """Lock the path from the root to `node`, which is on the device."""
        self.move_lock_ref(self.root, node)

    def move_lock_ref(self, above: TreeNode, node: TreeNode) -> None:
        """Move one lock from a node to one below it, on the device: the path to `above` keeps it.
        The root has any number of locks."""
        while node is not above:
            if node.lock_ref == 0:
                self._order.discard(node)
                self.evictable_pages -= node.num_pages
                self.protected_pages += node.num_pages
            node.lock_ref += 1
            assert node.parent is not None, "`above` is on the path"
            node = node.parent

    def dec_lock_ref(self, node: TreeNode) -> None:
        """Undo one `inc_lock_ref`; nodes that become evictable count as just used."""
        self._now += 1
        while node.parent is not None:
            node.lock_ref -= 1
            if node.lock_ref == 0:
                node.used = self._now
                self.evictable_pages += node.num_pages
                self.protected_pages -= node.num_pages
                if node.is_forgotten:
                    self._drop(node)
                else:
                    self._order.add(node)
            node = node.parent
        self._release()

    # Evict

    def evict(self, count: int) -> int:
        """Free at least `count` pages of the device, or all evictable ones; returns how many.

        A leaf that holds more than is needed loses only its end. All pages are freed in one call.
        At least 0.4 % of the pool is evicted at once, so that steps that need a few pages each do
        not evict every time; with a host tier only `count`, since a step waits for the copies.
        """
        if count <= 0:
            return 0
        count = min(max(count, self._least_evicted), self.evictable_pages)
        freed = 0
        while freed < count:
            leaf = self._order.pop()
            missing = count - freed
            if self._host and (leaf.children or self._belongs_on_host(leaf)):
                freed += self._evict_to_host(leaf, missing)
            elif missing < len(leaf.key) // self.page_size:
                freed += self._evict_end(leaf, missing)
            else:
                freed += self._evict_leaf(leaf)
        self._release()
        return freed

    def _evict_leaf(self, leaf: TreeNode) -> int:
        """Remove a popped leaf that is not on the host; returns how many pages it had.

        It is `_remove` inlined, since this is the hot loop of bulk evictions.
        """
        pages, parent = leaf.pages, leaf.parent
        assert pages is not None
        assert parent is not None
        leaf.pages = None
        self._freed.append(pages)
        self._ghosts.add(leaf.marks)
        if self.watcher:
            self.watcher.removed(leaf)
        self.evictable_pages -= len(pages)
        self.evicted_pages += len(pages)
        del parent.children[leaf.edge]
        parent.device_children -= 1
        if parent.device_children == 0:
            self._order.expose(parent)
        return len(pages)

    def _evict_end(self, leaf: TreeNode, count: int) -> int:
        """Remove the last `count` pages of such a leaf; returns `count`."""
        keep = leaf.num_pages - count
        marks = self._ghosts.blocks(leaf.start, leaf.start + keep * self.page_size)
        freed, forgotten = leaf.cut_off(keep, self.page_size, marks)
        self._freed.append(freed)
        self._ghosts.add(forgotten)
        self.evictable_pages -= count
        self.evicted_pages += count
        self._order.add_upper(leaf)
        if self.watcher:
            self.watcher.shortened(leaf)
        return count

    def _evict_to_host(self, leaf: TreeNode, count: int) -> int:
        """Free the last `count` pages of a popped leaf, and keep them on the host if they belong
        there and fit; returns how many.

        Evicts at least a block, so that nodes do not shrink to single pages.
        """
        size = leaf.num_pages
        count = min(max(count, self._ghosts.block_pages), size)
        if count < size:
            self._split(leaf, size - count)  # leaf is the lower part now
        if self._belongs_on_host(leaf) and self._back_up(leaf):
            self._free_device_pages(leaf)
        else:
            self._remove(leaf)
        return count

    def _belongs_on_host(self, leaf: TreeNode) -> bool:
        """Whether storing a leaf pays: a page that is stored now and used again is copied twice."""
        assert self._host is not None
        stores_on_eviction = self._host.store_hits is None and self._host.pays(2)
        return leaf.host_pages is not None or stores_on_eviction

    def _back_up(self, node: TreeNode) -> bool:
        """Store a node on the host; returns False and stores nothing if there is no room."""
        assert self._host is not None
        if node.host_pages is None and self._make_host_room(node.num_pages):
            self._host.store(node)
        return node.host_pages is not None

    def _make_host_room(self, count: int) -> bool:
        """Free host pages until `count` are free; returns False and frees nothing if that is not
        possible."""
        host = self._host
        assert host is not None
        if count > host.allocator.num_free + host.evictable_pages:
            return False
        while (missing := count - host.allocator.num_free) > 0:
            oldest = host.oldest()
            if oldest.pages is not None:
                host.drop(oldest)  # the node stays on the device
                continue
            missing = max(missing, self._ghosts.block_pages)
            if missing < oldest.num_pages:
                self._split(oldest, oldest.num_pages - missing)
            self._remove(oldest)
        return True

    def _remove(self, node: TreeNode) -> None:
        """Remove a node and its subtree from the tree; none of it may be locked or in the order of
        eviction."""
        assert node.parent is not None
        nodes = list(node.subtree()) if node.children else [node]
        self._report_removed(nodes)
        for each in nodes:
            self.evicted_pages += each.num_pages
            self._ghosts.add(each.marks)
            self._drop(each)
        del node.parent.children[node.edge]

    # Helpers

    def _report_removed(self, nodes: Sequence[TreeNode]) -> None:
        """Report a subtree's nodes, which are given parents first."""
        if self.watcher:
            for node in reversed(nodes):
                self.watcher.removed(node)

    def _drop(self, node: TreeNode) -> None:
        """Free the pages of a node that is neither locked nor in the order of eviction."""
        if node.pages is not None:
            self._free_device_pages(node)
        if node.host_pages is not None:
            assert self._host is not None
            self._host.drop(node)

    def _arrive(self, node: TreeNode, pages: Pages) -> None:
        """Give a node these device pages, which hold its keys and values or will hold them."""
        assert node.parent is not None
        node.pages = pages
        node.created = self._now
        node.parent.device_children += 1
        self.evictable_pages += len(pages)
        self._order.add(node)

    def _free_device_pages(self, node: TreeNode) -> None:
        assert node.pages is not None
        assert node.parent is not None
        pages, node.pages = node.pages, None
        self._freed.append(pages)
        self.evictable_pages -= len(pages)
        if not node.is_forgotten:
            self._lost_device_child(node.parent)
        if self._host:
            self._host.left_device(node, pages)

    def _lost_device_child(self, parent: TreeNode) -> None:
        parent.device_children -= 1
        if parent.device_children == 0:
            self._order.expose(parent)

    def _release(self) -> None:
        if self._freed:
            freed, self._freed = self._freed, []
            self._allocator.free(*freed)

    def _split(self, node: TreeNode, count: int) -> TreeNode:
        """Split an edge after `count` pages; returns the new node, which is the upper part.

        The upper part is then the oldest in the order of eviction. The caller either evicts the
        lower part or touches the upper one.
        """
        marks = self._ghosts.blocks(node.start, node.start + count * self.page_size)
        upper = node.split(count, self.page_size, marks)
        if upper.pages is not None and upper.lock_ref == 0:
            self._order.add_upper(upper)
        if upper.host_pages is not None:
            assert self._host is not None
            self._host.add_upper(upper, node)
        if self.watcher:
            self.watcher.split(upper, node)
        return upper

    def _touch(self, node: TreeNode) -> None:
        self._now += 1
        now, host = self._now, self._host
        while node.parent is not None:
            node.used = now
            if node.lock_ref == 0 and node.pages is not None:
                self._order.touch(node)
            if node.host_pages is not None:
                assert host is not None
                host.touch(node)
            node = node.parent

    # Inspect

    def nodes(self) -> Iterator[TreeNode]:
        """All nodes except the root, parents before children."""
        for child in self.root.children.values():
            yield from child.subtree()

    def pretty_print(self) -> str:
        """The tree as indented lines, for debugging."""
        head = f"root, {self.evictable_pages} evictable and {self.protected_pages} locked pages"
        return "\n".join([head, *outline(self.root)])
