"""`fifo`: the one first that was stored first."""

from heapq import heapify, heappop, heappush
from typing import Generic

from pando_worker.policies.eviction.order import EvictionPolicy, NodeT


class FirstStored(Generic[NodeT]):
    """Leaves in a binary heap by the time they were stored on the device.

    A leaf that is locked, or gets children, stays in the heap and is skipped when it surfaces; it
    is pushed again when it becomes an unlocked leaf again.
    """

    def __init__(self) -> None:
        # All unlocked nodes, with the number of their heap entry.
        self._nodes: dict[NodeT, int] = {}
        self._heap: list[tuple[int, int, NodeT]] = []
        self._pushed = 0

    def add(self, node: NodeT) -> None:
        self._nodes[node] = -1
        self.expose(node)

    add_upper = add

    def touch(self, node: NodeT) -> None:
        pass

    def discard(self, node: NodeT) -> None:
        del self._nodes[node]

    def expose(self, node: NodeT) -> None:
        if node.device_children or node not in self._nodes:
            return
        self._pushed += 1
        self._nodes[node] = self._pushed
        heappush(self._heap, (node.created, self._pushed, node))
        if len(self._heap) > 2 * len(self._nodes) + 64:
            self._heap = [entry for entry in self._heap if self._holds(entry)]
            heapify(self._heap)

    def pop(self) -> NodeT:
        while not self._holds(entry := heappop(self._heap)):
            pass
        node = entry[2]
        del self._nodes[node]
        return node

    def _holds(self, entry: tuple[int, int, NodeT]) -> bool:
        _, number, node = entry
        return self._nodes.get(node) == number and node.device_children == 0


FIFO = EvictionPolicy(name="fifo", help="the oldest", make=FirstStored)
