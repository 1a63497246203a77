"""`lfu`: the one with the fewest hits first, among equals the least recently used."""

from heapq import heappop, heappush
from typing import Generic

from pando_worker.policies.eviction.lru import LeastRecentlyUsed
from pando_worker.policies.eviction.order import EvictionPolicy, NodeT


class LeastFrequentlyUsed(Generic[NodeT]):
    """An order by last use for each number of hits; evicts the first of the lowest number.

    Hits are counted only on locked paths, so a node's do not change while it is here; and on whole
    paths, so no node has more than its ancestors. Hence the first one is a leaf, as in
    `LeastRecentlyUsed`.
    """

    def __init__(self) -> None:
        self._by_hits: dict[int, LeastRecentlyUsed[NodeT]] = {}  # none of them empty
        # A heap of their keys; a number whose order became empty stays until it surfaces.
        self._hits: list[int] = []

    def _like(self, node: NodeT) -> LeastRecentlyUsed[NodeT]:
        if node.hits not in self._by_hits:
            self._by_hits[node.hits] = LeastRecentlyUsed()
            heappush(self._hits, node.hits)
            if len(self._hits) > 2 * len(self._by_hits) + 64:
                self._hits = sorted(self._by_hits)
        return self._by_hits[node.hits]

    def add(self, node: NodeT) -> None:
        self._like(node).add(node)

    def add_upper(self, node: NodeT) -> None:
        self._like(node).add_upper(node)

    def touch(self, node: NodeT) -> None:
        self._by_hits[node.hits].touch(node)

    def discard(self, node: NodeT) -> None:
        order = self._by_hits[node.hits]
        order.discard(node)
        if not order:
            del self._by_hits[node.hits]

    def expose(self, node: NodeT) -> None:
        pass

    def pop(self) -> NodeT:
        while self._hits[0] not in self._by_hits:
            heappop(self._hits)
        order = self._by_hits[self._hits[0]]
        node = order.pop()
        if not order:
            del self._by_hits[node.hits]
        return node


LFU = EvictionPolicy(name="lfu", help="the one with the fewest hits", make=LeastFrequentlyUsed)
