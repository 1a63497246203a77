"""`lru`: the least recently used first."""

from collections import OrderedDict
from typing import Generic

from pando_worker.policies.eviction.order import EvictionPolicy, NodeT


class LeastRecentlyUsed(Generic[NodeT]):
    """Needs no heap: an ordered dict, oldest first.

    Touching or unlocking a path moves its nodes to the end, deepest first, so a node always comes
    after its descendants. A locked node's ancestors are locked, so an unlocked node has only
    unlocked descendants. Hence the first entry is always a leaf: O(1), whatever the tree's size.
    """

    def __init__(self) -> None:
        self._nodes: OrderedDict[NodeT, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, node: NodeT) -> None:
        self._nodes[node] = None

    def add_upper(self, node: NodeT) -> None:
        # If the lower part was just popped, it was the first, and the upper one is next. Otherwise
        # the caller touches the upper one.
        self._nodes[node] = None
        self._nodes.move_to_end(node, last=False)

    def touch(self, node: NodeT) -> None:
        self._nodes.move_to_end(node)

    def discard(self, node: NodeT) -> None:
        del self._nodes[node]

    def expose(self, node: NodeT) -> None:
        pass

    def pop(self) -> NodeT:
        return self._nodes.popitem(last=False)[0]


LRU = EvictionPolicy(name="lru", help="the least recently used", make=LeastRecentlyUsed)
