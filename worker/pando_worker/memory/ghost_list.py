"""`GhostList`: recognizes what was evicted and is asked for again soon.

A *hot* eviction is one that a pool of twice the size would not have needed: the evicted prefix is
asked for again while no more than the pool's capacity of other tokens was evicted after it. That
is the ghost list B1 of ARC (Megiddo and Modha, FAST 2003): keys without data of what was evicted
last, as many as the cache holds.

A prefix is known by one 64-bit *mark* for each block of tokens, at least 64 and whole pages, over
all tokens up to the block's end. So the list is 1/64 of the pool's tokens long at most, and what is
shorter than a block, or the end of a prompt beyond its last whole block, is not seen. A block
counts as evicted when its last page is.
"""

import numpy as np

from pando_worker.memory.tree_node import Marks, Tokens

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class GhostList:
    def __init__(self, capacity_tokens: int, page_size: int, min_block_tokens: int = 64) -> None:
        """
        Args:
            capacity_tokens: how many evicted tokens to remember.
        """
        self.block_pages = -(-min_block_tokens // page_size)
        self.block_tokens = self.block_pages * page_size
        self._capacity = capacity_tokens // self.block_tokens
        self._marks: dict[int, None] = {}  # oldest first
        # Multilinear hashing of a block: random odd weights, modulo 2^64.
        weights = np.random.default_rng(0).integers(0, 2**63, self.block_tokens, dtype=np.uint64)
        self._weights = weights * np.uint64(2) + np.uint64(1)

    def __len__(self) -> int:
        return len(self._marks)

    def marks(self, key: Tokens, start: int, before: Marks) -> Marks:
        """Marks of the blocks that end in `key` after token `start`, `[count]`.

        Args:
            before: marks of the blocks that end earlier; the last one is needed, if there is any.
        """
        size, first = self.block_tokens, start // self.block_tokens
        count = len(key) // size - first
        blocks = key[first * size : (first + count) * size].astype(np.uint64).reshape(count, size)
        index = np.arange(first + 1, first + count + 1, dtype=np.uint64)
        mixed = _mix(blocks @ self._weights + index * _GOLDEN)
        if len(before):
            mixed[:1] += before[-1]
        return np.cumsum(mixed, dtype=np.uint64)

    def add(self, marks: Marks) -> None:
        """These blocks were evicted."""
        for mark in marks.tolist():
            self._marks.pop(mark, None)
            self._marks[mark] = None
        while len(self._marks) > self._capacity:
            del self._marks[next(iter(self._marks))]

    def asked(self, marks: Marks) -> int:
        """Tokens of these blocks that were evicted and not yet asked for; they are forgotten."""
        found = [mark for mark in marks.tolist() if mark in self._marks]
        for mark in found:
            del self._marks[mark]
        return len(found) * self.block_tokens

    def clear(self) -> None:
        self._marks.clear()


def _mix(x: Marks) -> Marks:
    """The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
