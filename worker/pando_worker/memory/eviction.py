"""Which cached prefix goes first when the device's pages run out: `lru`, `lfu` or `fifo`.

Only a leaf can go: a node that nobody locks, without children on the device. An `EvictionOrder` is
told of every unlocked node on the device and names the leaf to evict.
"""

from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Protocol

from pando_worker.memory.tree_node import TreeNode

Key = tuple[int, ...]


class EvictionOrder(Protocol):
    def add(self, node: TreeNode) -> None:
        """It has just been stored, or unlocked. Children come before their parents."""
        ...

    def add_upper(self, node: TreeNode) -> None:
        """It holds the beginning of a node that is in the order, and is its child now; or of one
        that was popped just now."""
        ...

    def touch(self, node: TreeNode) -> None:
        """It has just been used. Children come before their parents."""
        ...

    def discard(self, node: TreeNode) -> None:
        """It is locked now."""
        ...

    def expose(self, node: TreeNode) -> None:
        """The last of its children on the device is gone: it may be a leaf now."""
        ...

    def pop(self) -> TreeNode:
        """Take the leaf to evict out of the order, which is not empty."""
        ...


def make_order(policy: str) -> EvictionOrder:
    match policy:
        case "lru":
            return LeastRecentlyUsed()
        case "lfu":
            return SmallestKey(lambda node: (node.hits, node.used))
        case "fifo":
            return SmallestKey(lambda node: (node.created,))
    raise ValueError(f"unknown eviction policy {policy!r}: one of lru, lfu, fifo")


class LeastRecentlyUsed:
    """Needs no heap: an ordered dict, oldest first.

    Whoever touches or unlocks a path moves its nodes to the end, deepest first, so a node always
    stands behind its descendants; and a locked node's ancestors are locked, so an unlocked node has
    only unlocked descendants. Hence the first entry is always a leaf: O(1), whatever the tree's
    size.
    """

    def __init__(self) -> None:
        self._nodes: OrderedDict[TreeNode, None] = OrderedDict()

    def add(self, node: TreeNode) -> None:
        self._nodes[node] = None

    def add_upper(self, node: TreeNode) -> None:
        # If the lower part was popped to be evicted, it was the first, and this is next. If it was
        # not, the caller touches this.
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


class SmallestKey:
    """Leaves in a binary heap by a key; entries that no longer hold are skipped as they surface."""

    def __init__(self, key: Callable[[TreeNode], Key]) -> None:
        self._key_of = key
        self._keys: dict[TreeNode, Key] = {}  # of all unlocked nodes
        self._heap: list[tuple[Key, int, TreeNode]] = []
        self._pushed = 0  # tells entries with the same key apart

    def add(self, node: TreeNode) -> None:
        key = self._key_of(node)
        if self._keys.get(node) != key:
            self._keys[node] = key
            self._push(node)

    def discard(self, node: TreeNode) -> None:
        del self._keys[node]

    def expose(self, node: TreeNode) -> None:
        if node in self._keys:
            self._push(node)

    add_upper = touch = add

    def pop(self) -> TreeNode:
        while not self._holds(entry := heappop(self._heap)):
            pass
        node = entry[2]
        del self._keys[node]
        return node

    def _push(self, node: TreeNode) -> None:
        if node.device_children:
            return  # until it is exposed
        self._pushed += 1
        heappush(self._heap, (self._keys[node], self._pushed, node))
        if len(self._heap) > 2 * len(self._keys) + 64:
            self._heap = [entry for entry in self._heap if self._holds(entry)]
            heapify(self._heap)

    def _holds(self, entry: tuple[Key, int, TreeNode]) -> bool:
        key, _, node = entry
        return self._keys.get(node) == key and node.device_children == 0
