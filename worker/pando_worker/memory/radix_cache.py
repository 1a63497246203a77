"""`RadixCache`: the prefixes whose keys and values the pool holds, as a compressed radix tree.

An edge holds a run of whole pages: `key`, their token ids, and `pages`, where they lie in the KV
pool. Requests lock the path they use (`lock_ref`); what nobody locks is evictable.

Eviction order needs no heap. `_evictable` is an ordered dict of all unlocked nodes, oldest first.
Whoever touches or unlocks a path moves its nodes to the end, deepest first, so a node always stands
behind its descendants; and a locked node's ancestors are locked, so an unlocked node has only
unlocked descendants. Hence the first entry is always a leaf, and the least recently used one:
evicting costs O(evicted), whatever the size of the tree.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pando_worker.memory.page_allocator import PageAllocator, Pages

Tokens = NDArray[np.int32]

_NO_TOKENS: Tokens = np.empty(0, dtype=np.int32)
_NO_PAGES: Pages = np.empty(0, dtype=np.int32)


class TreeNode:
    __slots__ = ("children", "key", "lock_ref", "pages", "parent")

    def __init__(self, parent: "TreeNode | None", key: Tokens, pages: Pages) -> None:
        self.parent = parent
        self.key = key  # [len(pages) * page_size]
        self.pages = pages
        self.children: dict[bytes, TreeNode] = {}  # by the bytes of a child's first page
        self.lock_ref = 0  # locks on this node or below it


@dataclass(frozen=True, slots=True)
class Match:
    """The longest cached prefix of a key: its pages in order and the node at which it ends."""

    pages: Pages
    node: TreeNode


class RadixCache:
    """Owns the pages that requests left behind, and gives them back to the allocator by LRU.

    With `enabled=False` nothing ever matches and nothing is kept.
    """

    def __init__(self, allocator: PageAllocator, page_size: int, *, enabled: bool = True) -> None:
        self.page_size = page_size
        self.enabled = enabled
        self._allocator = allocator
        self.root = TreeNode(None, _NO_TOKENS, _NO_PAGES)
        self.root.lock_ref = 1  # never evicted
        self._evictable: OrderedDict[TreeNode, None] = OrderedDict()
        self.evictable_pages = 0
        self.protected_pages = 0

    def reset(self) -> None:
        """Forget everything and free its pages.

        Raises:
            RuntimeError: some are locked.
        """
        if self.protected_pages:
            raise RuntimeError(f"the radix cache is in use: {self.pretty_print()}")
        self.evict(self.evictable_pages)

    def prefix_len(self, key: Tokens) -> int:
        """Tokens of `key` that are cached; changes nothing, not even what is recent."""
        return sum(matched for _, matched in self._walk(key)) * self.page_size

    def path(self, key: Tokens) -> list[TreeNode]:
        """The nodes along `key`, the root first; changes nothing. The last may match in part."""
        return [self.root, *(child for child, _ in self._walk(key))]

    def match_prefix(self, key: Tokens) -> Match:
        """The longest cached prefix of whole pages; marks it as just used.

        Splits the last edge where `key` leaves it, so that the match ends at a node to lock.
        """
        node, pages = self.root, []
        for child, matched in self._walk(key):
            node = child if matched == len(child.pages) else self._split(child, matched)
            pages.append(node.pages)
        self._touch(node)
        return Match(np.concatenate(pages) if pages else _NO_PAGES, node)

    def insert(self, key: Tokens, pages: Pages) -> int:
        """Store `pages` under `key`; they are `len(key) / page_size` many.

        Returns how many leading pages the tree had already. Those of the caller's pages stay the
        caller's; from there on they belong to the tree.
        """
        match = self.match_prefix(key)
        known = len(match.pages)
        if known < len(pages):
            leaf = TreeNode(match.node, key[known * self.page_size :].copy(), pages[known:].copy())
            match.node.children[self._edge(leaf.key)] = leaf
            self._evictable[leaf] = None
            self.evictable_pages += len(leaf.pages)
            self._touch(leaf)
        return known

    def inc_lock_ref(self, node: TreeNode) -> None:
        """Protect the path from the root to `node`."""
        for each in self._path_up(node):
            if each.lock_ref == 0:
                del self._evictable[each]
                self.evictable_pages -= len(each.pages)
                self.protected_pages += len(each.pages)
            each.lock_ref += 1

    def dec_lock_ref(self, node: TreeNode) -> None:
        """Undo one `inc_lock_ref`; what becomes evictable counts as just used."""
        for each in self._path_up(node):
            each.lock_ref -= 1
            if each.lock_ref == 0:
                self._evictable[each] = None
                self.evictable_pages += len(each.pages)
                self.protected_pages -= len(each.pages)

    def evict(self, count: int) -> int:
        """Free the `count` least recently used pages, or all evictable ones; returns how many.

        A leaf that holds more than is needed only loses its end.
        """
        freed = 0
        while freed < count and self._evictable:
            leaf = next(iter(self._evictable))
            keep = max(0, len(leaf.pages) - (count - freed))
            self._allocator.free(leaf.pages[keep:])
            freed += len(leaf.pages) - keep
            if keep:
                leaf.pages = leaf.pages[:keep].copy()
                leaf.key = leaf.key[: keep * self.page_size].copy()
            else:
                assert leaf.parent is not None
                del leaf.parent.children[self._edge(leaf.key)]
                del self._evictable[leaf]
        self.evictable_pages -= freed
        return freed

    def nodes(self) -> Iterator[TreeNode]:
        """All nodes but the root, parents before children."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            if node is not self.root:
                yield node
            stack.extend(node.children.values())

    def pretty_print(self) -> str:
        """The tree as indented lines, for debugging: tokens, pages and locks of each edge."""
        lines = [f"root, {self.evictable_pages} evictable and {self.protected_pages} locked pages"]
        stack = [(child, 1) for child in self.root.children.values()]
        while stack:
            node, depth = stack.pop()
            head = " ".join(map(str, node.key[:8])) + (" …" if len(node.key) > 8 else "")
            lines.append(
                f"{'  ' * depth}{len(node.key)} tokens [{head}] in {len(node.pages)} pages,"
                f" lock_ref {node.lock_ref}"
            )
            stack.extend((child, depth + 1) for child in node.children.values())
        return "\n".join(lines)

    def _walk(self, key: Tokens) -> Iterator[tuple[TreeNode, int]]:
        """The nodes along `key` from the root down, each with how many of its pages match."""
        node, start = self.root, 0
        while child := node.children.get(self._edge(key, start)):
            matched = self._common_pages(child.key, key[start:])
            next_start = start + len(child.key)
            whole = matched == len(child.pages)  # asked before the caller may split the child
            yield child, matched
            if not whole:
                return
            node, start = child, next_start

    def _edge(self, key: Tokens, start: int = 0) -> bytes:
        return key[start : start + self.page_size].tobytes()

    def _common_pages(self, a: Tokens, b: Tokens) -> int:
        length = min(len(a), len(b))
        differs = a[:length] != b[:length]
        same = int(differs.argmax()) if differs.any() else length
        return same // self.page_size

    def _split(self, node: TreeNode, count: int) -> TreeNode:
        """Cut an edge after `count` pages; returns the new node, which is the upper part."""
        assert node.parent is not None
        cut = count * self.page_size
        upper = TreeNode(node.parent, node.key[:cut].copy(), node.pages[:count].copy())
        upper.lock_ref = node.lock_ref
        upper.children[self._edge(node.key, cut)] = node
        node.parent.children[self._edge(upper.key)] = upper
        node.parent = upper
        node.key, node.pages = node.key[cut:].copy(), node.pages[count:].copy()
        if upper.lock_ref == 0:
            self._evictable[upper] = None  # at the end: behind its descendants
        return upper

    def _touch(self, node: TreeNode) -> None:
        for each in self._path_up(node):
            if each.lock_ref == 0:
                self._evictable.move_to_end(each)

    def _path_up(self, node: TreeNode) -> Iterator[TreeNode]:
        while node.parent is not None:
            yield node
            node = node.parent
