"""Which cached prefix is evicted first when the device's pages run out: `lru`, `lfu` or `fifo`.

Only a leaf can be evicted: an unlocked node without children on the device. An `EvictionOrder` is
notified of every unlocked node on the device and returns the leaf to evict.
"""

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import Protocol

from pando_worker.memory.tree_node import TreeNode


class EvictionOrder(Protocol):
    def add(self, node: TreeNode) -> None:
        """A node was stored, or unlocked. Children are added before their parents."""
        ...

    def add_upper(self, node: TreeNode) -> None:
        """A node was split: `node` is the new upper part of one that is in the order and is now its
        child, or of one that was just popped."""
        ...

    def touch(self, node: TreeNode) -> None:
        """A node was used. Children are touched before their parents."""
        ...

    def discard(self, node: TreeNode) -> None:
        """A node was locked."""
        ...

    def expose(self, node: TreeNode) -> None:
        """A node lost its last child on the device, so it may be a leaf now."""
        ...

    def pop(self) -> TreeNode:
        """Remove and return the leaf to evict; the order must not be empty."""
        ...


def make_order(policy: str) -> EvictionOrder:
    match policy:
        case "lru":
            return LeastRecentlyUsed()
        case "lfu":
            return LeastFrequentlyUsed()
        case "fifo":
            return FirstStored()
    raise ValueError(f"unknown eviction policy {policy!r}; use one of lru, lfu, fifo")


class LeastRecentlyUsed:
    """Needs no heap: an ordered dict, oldest first.

    Touching or unlocking a path moves its nodes to the end, deepest first, so a node always comes
    after its descendants. A locked node's ancestors are locked, so an unlocked node has only
    unlocked descendants. Hence the first entry is always a leaf: O(1), whatever the tree's size.
    """

    def __init__(self) -> None:
        self._nodes: OrderedDict[TreeNode, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, node: TreeNode) -> None:
        self._nodes[node] = None

    def add_upper(self, node: TreeNode) -> None:
        # If the lower part was just popped, it was the first, and the upper one is next. Otherwise
        # the caller touches the upper one.
        self._nodes[node] = None
        self._nodes.move_to_end(node, last=False)

    def touch(self, node: TreeNode) -> None:
        self._nodes.move_to_end(node)

    def discard(self, node: TreeNode) -> None:
        del self._nodes[node]

    def expose(self, node: TreeNode) -> None:
        pass

    def pop(self) -> TreeNode:
        return self._nodes.popitem(last=False)[0]


class LeastFrequentlyUsed:
    """An order by last use for each number of hits; evicts the first of the lowest number.

    Hits are counted only on locked paths, so a node's do not change while it is here; and on whole
    paths, so no node has more than its ancestors. Hence the first one is a leaf, as above.
    """

    def __init__(self) -> None:
        self._by_hits: dict[int, LeastRecentlyUsed] = {}  # none of them empty
        # A heap of their keys; a number whose order became empty stays until it surfaces.
        self._hits: list[int] = []

    def _like(self, node: TreeNode) -> LeastRecentlyUsed:
        if node.hits not in self._by_hits:
            self._by_hits[node.hits] = LeastRecentlyUsed()
            heappush(self._hits, node.hits)
            if len(self._hits) > 2 * len(self._by_hits) + 64:
                self._hits = sorted(self._by_hits)
        return self._by_hits[node.hits]

    def add(self, node: TreeNode) -> None:
        self._like(node).add(node)

    def add_upper(self, node: TreeNode) -> None:
        self._like(node).add_upper(node)

    def touch(self, node: TreeNode) -> None:
        self._by_hits[node.hits].touch(node)

    def discard(self, node: TreeNode) -> None:
        order = self._by_hits[node.hits]
        order.discard(node)
        if not order:
            del self._by_hits[node.hits]

    def expose(self, node: TreeNode) -> None:
        pass

    def pop(self) -> TreeNode:
        while self._hits[0] not in self._by_hits:
            heappop(self._hits)
        order = self._by_hits[self._hits[0]]
        node = order.pop()
        if not order:
            del self._by_hits[node.hits]
        return node


class FirstStored:
    """Leaves in a binary heap by the time they were stored on the device.

    A leaf that is locked, or gets children, stays in the heap and is skipped when it surfaces; it
    is pushed again when it becomes an unlocked leaf again.
    """

    def __init__(self) -> None:
        # All unlocked nodes, with the number of their heap entry.
        self._nodes: dict[TreeNode, int] = {}
        self._heap: list[tuple[int, int, TreeNode]] = []
        self._pushed = 0

    def add(self, node: TreeNode) -> None:
        self._nodes[node] = -1
        self.expose(node)

    add_upper = add

    def touch(self, node: TreeNode) -> None:
        pass

    def discard(self, node: TreeNode) -> None:
        del self._nodes[node]

    def expose(self, node: TreeNode) -> None:
        if node.device_children or node not in self._nodes:
            return
        self._pushed += 1
        self._nodes[node] = self._pushed
        heappush(self._heap, (node.created, self._pushed, node))
        if len(self._heap) > 2 * len(self._nodes) + 64:
            self._heap = [entry for entry in self._heap if self._holds(entry)]
            heapify(self._heap)

    def pop(self) -> TreeNode:
        while not self._holds(entry := heappop(self._heap)):
            pass
        node = entry[2]
        del self._nodes[node]
        return node

    def _holds(self, entry: tuple[int, int, TreeNode]) -> bool:
        _, number, node = entry
        return self._nodes.get(node) == number and node.device_children == 0
