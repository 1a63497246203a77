"""`RadixCache`: the cached prefixes' keys and values, as a compressed radix tree.

An edge holds a run of whole pages (`TreeNode`); `evictable_tree.py` locks, evicts and frees them.
A match has a part on the device and, with a host tier, perhaps a further part on the host; `load`
copies that part back.
"""

import numpy as np

from pando_worker.memory.evictable_tree import EvictableTree
from pando_worker.memory.page_allocator import Pages
from pando_worker.memory.tree_node import (
    NO_PAGES,
    Insertion,
    Match,
    Tokens,
    TreeNode,
    edge,
    path_down,
    walk,
)

__all__ = ["Match", "RadixCache", "Tokens", "TreeNode"]


class RadixCache(EvictableTree):
    """Keeps the pages of finished requests by their tokens.

    Prefixes never match across namespaces (`namespace.py`): the same tokens in two namespaces are
    kept twice.
    """

    # Match

    def prefix_len(self, key: Tokens, namespace: bytes = b"") -> int:
        """Tokens of `key` that are cached; changes nothing, not even the order of eviction."""
        path = walk(self.root, key, self.page_size, namespace)
        return sum(matched for _, matched in path) * self.page_size

    def pages_of(self, key: Tokens, namespace: bytes = b"") -> Pages:
        """The device's pages of the longest cached prefix of `key`, in order; changes nothing."""
        path = walk(self.root, key, self.page_size, namespace)
        pages = [child.pages[:matched] for child, matched in path if child.pages is not None]
        return np.concatenate(pages) if pages else NO_PAGES

    def path(self, key: Tokens, namespace: bytes = b"") -> list[TreeNode]:
        """The nodes along `key`, the root first; the last may match in part. Changes nothing."""
        return [self.root, *(child for child, _ in walk(self.root, key, self.page_size, namespace))]

    def match_prefix(
        self, key: Tokens, namespace: bytes = b"", above: TreeNode | None = None
    ) -> Match:
        """The longest cached prefix of whole pages; marks it as just used.

        Args:
            above: a node on the device up to which `key` is known to match, such as a locked one;
                only nodes below it are searched, and only their pages are in the match.
        """
        match = self._find(key, namespace, above or self.root)
        self._touch(match.end)
        return match

    def _find(self, key: Tokens, namespace: bytes, above: TreeNode) -> Match:
        """Splits the last edge where `key` diverges, so that the match ends at a node, which the
        caller must touch."""
        device = end = above
        pages: list[Pages] = []
        host_pages = 0
        for child, matched in walk(above, key, self.page_size, namespace):
            end = child if matched == child.num_pages else self._split(child, matched)
            if end.pages is None:
                host_pages += matched
            else:
                device = end
                pages.append(end.pages)
        return Match(np.concatenate(pages) if pages else NO_PAGES, device, host_pages, end)

    def count_use(self, key: Tokens, match: Match, namespace: bytes = b"") -> None:
        """Count the admission of a request for `key` with the locked `match`: hits, hot evictions,
        and the stores that the hits trigger."""
        for node in list(match.end.path_up()):
            node.hits += 1
            if self._host and self._host.store_hits and node.hits >= self._host.store_hits:
                self._back_up(node)
        if self.evicted_pages:
            marks = self._ghosts.marks(key, match.end.end, match.end.marks_before(), namespace)
            self.hot_evicted_tokens += self._ghosts.count_hot(marks)

    # Insert

    def insert(
        self,
        key: Tokens,
        pages: Pages,
        namespace: bytes = b"",
        above: TreeNode | None = None,
    ) -> Insertion:
        """Insert the `len(key) / page_size` pages of `key`.

        The caller keeps its own copies of the known ones; the other pages now belong to the tree.
        `above` is as in `match_prefix`.
        """
        above = above or self.root
        match = self._find(key, namespace, above)
        known = start = above.end // self.page_size + len(match.pages)
        for node in path_down(match.node, match.end):  # computed again instead of loaded
            count = node.num_pages
            self._arrive(node, pages[start : start + count].copy())
            start += count
        end = match.end
        if start < len(pages):
            first_page = edge(key, end.end, self.page_size)
            if end is self.root:
                first_page = namespace + first_page
            end = TreeNode(end, key[end.end :].copy(), len(key), first_page)
            end.marks = self._ghosts.marks(key, match.end.end, match.end.marks_before(), namespace)
            match.end.children[end.edge] = end
            self._arrive(end, pages[start:].copy())
            if self.watcher:
                self.watcher.added(end)
        self._touch(end)
        return Insertion(known, end)

    def hold(self, match: Match) -> None:
        """Keep the host part of `match` until `load`, which must follow: what is evicted from the
        device in between may take the host's pages."""
        assert self._host is not None
        for node in path_down(match.node, match.end):
            self._host.begin_load(node)

    def load(self, match: Match) -> Match:
        """Load the host part of `match` to the device, by copies that run before the next batch;
        returns the match with all its pages on the device.

        `match.node` must be locked, and `match.host_pages` pages must be free or evictable.
        """
        assert self._host is not None
        self.hold(match)
        nodes = path_down(match.node, match.end)
        self.evict(match.host_pages - self._allocator.num_free)
        pages = self._allocator.alloc(match.host_pages)
        start = 0
        for node in nodes:
            count = node.num_pages
            self._arrive(node, pages[start : start + count].copy())
            self._host.load(node)
            start += count
        self._touch(match.end)
        return Match(np.concatenate((match.pages, pages)), match.end, 0, match.end)

    def back_up(self, key: Tokens, namespace: bytes = b"") -> None:
        """Store the cached prefix of `key` on the host as well, as far as there is room."""
        for node in list(self.match_prefix(key, namespace).node.path_up()):
            self._back_up(node)

    def forget(self, key: Tokens, start: int, namespace: bytes = b"") -> None:
        """Remove the cached prefix of `key` from token `start` on, with all that continues it,
        because its keys and values are wrong. Locked nodes match no longer, and their pages are
        freed when they are unlocked.

        Args:
            start: a multiple of the page size.
        """
        above = self._find(key[:start], namespace, self.root).end
        self._touch(above)
        if above.end < start or start >= len(key):
            return
        first_page = edge(key, start, self.page_size)
        if above is self.root:
            first_page = namespace + first_page
        top = above.children.pop(first_page, None)
        if top is None:
            return
        if top.pages is not None:
            self._lost_device_child(above)
        nodes = list(top.subtree())
        self._report_removed(nodes)
        for node in nodes:
            node.is_forgotten = True
            if node.lock_ref == 0:
                if node.pages is not None:
                    self._order.discard(node)
                self._drop(node)
        self._release()
