"""The radix cache as SGLang first had it (0.2.6), rewritten here for comparison.

It keeps what determined the cost: keys are lists of ints, compared token by token; a match and an
insert recurse with the rest of the key as a new list; an eviction first collects all leaves of the
tree recursively, makes a heap of them by last use, and takes whole leaves; each leaf is freed
separately, by setting its slots in a mask over the pool, and is searched for among its parent's
children. Slots are int32 tensors, as there; here they are on the CPU, where a small indexed write
takes about as long as launching it on a GPU. The next version's pool appended to a list of free
slots by `torch.cat`, which copies that list for each leaf: it costs more, and is not modelled.

The original had pages of one token. For larger ones, a child is found by its first page, and pages
are compared instead of tokens.
"""

import heapq
import time
from collections.abc import Hashable
from typing import Optional

import torch
from torch import Tensor

PREFETCHED = 65_536


class MaskPool:
    """The free pages, as a mask."""

    def __init__(self, num_pages: int) -> None:
        self.num_free = num_pages
        self._is_free = torch.ones(num_pages, dtype=torch.bool)
        self._next = torch.empty(0, dtype=torch.int32)  # already taken out of the mask

    def alloc(self, count: int) -> Tensor:
        """`count` pages. This is not timed, so it looks for more at once than the original did."""
        while len(self._next) < count:
            found = self._is_free.nonzero().squeeze(1)[:PREFETCHED]
            assert len(found), "the pool is full"
            self._is_free[found] = False
            self._next = torch.cat((self._next, found.to(torch.int32)))
        pages, self._next = self._next[:count], self._next[count:]
        self.num_free -= count
        return pages

    def free(self, pages: Tensor) -> None:
        self._is_free[pages] = True
        self.num_free += len(pages)


class ListNode:
    def __init__(self, parent: Optional["ListNode"], key: list[int], pages: Tensor) -> None:
        self.parent = parent
        self.key = key
        self.pages = pages
        self.children: dict[Hashable, ListNode] = {}
        self.lock_ref = 0
        self.used = time.time()

    def __lt__(self, other: "ListNode") -> bool:
        return self.used < other.used


class ListRadixCache:
    def __init__(self, pool: MaskPool, page_size: int) -> None:
        self.page_size = page_size
        self._pool = pool
        self.root = ListNode(None, [], torch.empty(0, dtype=torch.int32))
        self.root.lock_ref = 1
        self.evictable = 0

    def match(self, key: list[int]) -> Tensor:
        """The pages of the longest cached prefix."""
        found: list[Tensor] = []
        self._match(self.root, key, found)
        return torch.cat(found) if found else torch.empty(0, dtype=torch.int32)

    def _match(self, node: ListNode, key: list[int], found: list[Tensor]) -> None:
        node.used = time.time()
        child = node.children.get(self._edge(key)) if key else None
        if child is None:
            return
        same = self._same(child.key, key)
        if same < len(child.key):
            found.append(self._split(child, same).pages)
        else:
            found.append(child.pages)
            self._match(child, key[same:], found)

    def insert(self, key: list[int], pages: Tensor) -> int:
        """Returns how many of the pages were known."""
        return self._insert(self.root, key, pages)

    def _insert(self, node: ListNode, key: list[int], pages: Tensor) -> int:
        node.used = time.time()
        if not key:
            return 0
        child = node.children.get(self._edge(key))
        if child is None:
            node.children[self._edge(key)] = ListNode(node, key, pages)
            self.evictable += len(pages)
            return 0
        same = self._same(child.key, key)
        if same < len(child.key):
            child = self._split(child, same)
        known = same // self.page_size
        return known + self._insert(child, key[same:], pages[known:])

    def evict(self, count: int) -> None:
        """Free at least `count` pages."""
        leaves = self._leaves()
        heapq.heapify(leaves)
        freed = 0
        while freed < count and leaves:
            leaf = heapq.heappop(leaves)
            if leaf.lock_ref > 0:
                continue
            self._pool.free(leaf.pages)
            freed += len(leaf.pages)
            self._delete(leaf)
            assert leaf.parent is not None
            if not leaf.parent.children:
                heapq.heappush(leaves, leaf.parent)

    def _leaves(self) -> list[ListNode]:
        leaves: list[ListNode] = []

        def collect(node: ListNode) -> None:
            if not node.children:
                leaves.append(node)
            for child in node.children.values():
                collect(child)

        collect(self.root)
        return leaves

    def _delete(self, leaf: ListNode) -> None:
        assert leaf.parent is not None
        for edge, child in leaf.parent.children.items():  # noqa: B007
            if child is leaf:
                break
        del leaf.parent.children[edge]
        self.evictable -= len(leaf.pages)

    def _split(self, node: ListNode, at: int) -> ListNode:
        assert node.parent is not None
        cut = at // self.page_size
        upper = ListNode(node.parent, node.key[:at], node.pages[:cut])
        node.parent.children[self._edge(upper.key)] = upper
        node.parent, node.key, node.pages = upper, node.key[at:], node.pages[cut:]
        upper.children[self._edge(node.key)] = node
        return upper

    def _edge(self, key: list[int]) -> Hashable:
        return key[0] if self.page_size == 1 else tuple(key[: self.page_size])

    def _same(self, a: list[int], b: list[int]) -> int:
        """How many leading tokens are equal, in whole pages."""
        size, same = self.page_size, 0
        if size == 1:
            for x, y in zip(a, b, strict=False):
                if x != y:
                    break
                same += 1
            return same
        while same < min(len(a), len(b)) and a[same : same + size] == b[same : same + size]:
            same += size
        return same
