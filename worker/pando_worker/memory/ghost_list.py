"""`GhostList`: recognizes what was evicted and is asked for again soon.

A *hot* eviction is one that a pool of twice the size would not have needed: the evicted prefix is
asked for again while no more than the pool's capacity of other tokens was evicted after it. That
is the ghost list B1 of ARC (Megiddo and Modha, FAST 2003): keys without data of what was evicted
last, as many as the cache holds.

A prefix is known by one 64-bit *mark* for each block of tokens, at least 64 and whole pages, over
all tokens up to the block's end. What is shorter than a block, or the end of a prompt beyond its
last whole block, is not seen. A block counts as evicted when its last page is.

Marks lie in a table at the place that their last bits name, with the time of their eviction; time
is the number of blocks evicted so far. The table has 8 places for each block that is remembered: a
mark is lost where a later one falls into its place, 1 of 16 on average, so the count is that much
too low. Adding and looking up are a few operations on arrays, however many blocks there are.
"""

import numpy as np

from pando_worker.memory.tree_node import NO_MARKS, Marks, Tokens

MAX_PENDING = 256
NEVER = -(2**62)
_GOLDEN, _FIRST, _SECOND, _S27, _S30, _S31 = (
    np.uint64(number)
    for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 27, 30, 31)
)


class GhostList:
    def __init__(self, capacity_tokens: int, page_size: int, min_block_tokens: int = 64) -> None:
        """
        Args:
            capacity_tokens: how many evicted tokens to remember.
        """
        self.block_pages = -(-min_block_tokens // page_size)
        self.block_tokens = self.block_pages * page_size
        self._capacity = capacity_tokens // self.block_tokens
        places = 1 << (max(128, self._capacity) * 8 - 1).bit_length()
        self._last_bits = np.uint64(places - 1)
        # Written, not only reserved: no page faults later, in the first evictions.
        self._marks: Marks = np.full(places, 0, dtype=np.uint64)
        self._evicted_at = np.full(places, NEVER, dtype=np.int64)
        self._evicted = 0  # blocks so far
        self._pending: list[Marks] = []  # evicted, and not in the table yet
        # Multilinear hashing of a block: random odd weights, modulo 2^64. Two tokens are a word.
        self._word = np.dtype(np.uint32 if self.block_tokens % 2 else np.uint64)
        words = self.block_tokens * 4 // self._word.itemsize
        weights = np.random.default_rng(0).integers(0, 2**63, words, dtype=np.uint64)
        self._weights = weights * np.uint64(2) + np.uint64(1)

    def blocks(self, start: int, end: int) -> int:
        """How many blocks end after token `start` and not after token `end`."""
        return end // self.block_tokens - start // self.block_tokens

    def marks(self, key: Tokens, start: int, before: Marks, namespace: bytes = b"") -> Marks:
        """Marks of the blocks that end in `key` after token `start`, `[count]`.

        Args:
            before: marks of the blocks that end earlier; the last one is needed, if there is any.
            namespace: the key's name space, in which its first mark begins.
        """
        size, first = self.block_tokens, start // self.block_tokens
        count = self.blocks(start, len(key))
        if count == 0:
            return NO_MARKS
        blocks = key[first * size : (first + count) * size].view(self._word).reshape(count, -1)
        sums = blocks @ self._weights
        index = np.arange(first + 1, first + count + 1, dtype=np.uint64)
        mixed = _mix(sums + index * _GOLDEN)
        if len(before):
            mixed[:1] += before[-1]
        elif namespace:
            mixed[:1] += np.frombuffer(namespace[:8], dtype=np.uint64)
        return mixed.cumsum()

    def add(self, marks: Marks) -> None:
        """These blocks were evicted."""
        self._pending.append(marks)
        if len(self._pending) >= MAX_PENDING:
            self._take_in()

    def asked(self, marks: Marks) -> int:
        """Tokens of these blocks that were evicted and not yet asked for; they are forgotten."""
        self._take_in()
        places = (marks & self._last_bits).view(np.int64)  # of which numpy makes no copy
        earliest = self._evicted - self._capacity
        found = (self._marks[places] == marks) & (self._evicted_at[places] >= earliest)
        self._evicted_at[places[found]] = NEVER
        return int(np.count_nonzero(found)) * self.block_tokens

    def clear(self) -> None:
        self._pending.clear()
        self._evicted_at.fill(NEVER)

    def _take_in(self) -> None:
        if not self._pending:
            return
        marks = np.concatenate(self._pending)
        self._pending.clear()
        places = (marks & self._last_bits).view(np.int64)  # of which numpy makes no copy
        self._marks[places] = marks
        self._evicted_at[places] = np.arange(self._evicted, self._evicted + len(marks))
        self._evicted += len(marks)


def _mix(x: Marks) -> Marks:
    """The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    x = (x ^ (x >> _S30)) * _FIRST
    x = (x ^ (x >> _S27)) * _SECOND
    return x ^ (x >> _S31)
