"""`GhostList`: recognizes evicted prefixes that are requested again soon.

A *hot* eviction is one that a pool of twice the size would have avoided: the evicted prefix is
requested again before more than the pool's capacity of other tokens has been evicted after it. This
is the ghost list B1 of ARC (Megiddo and Modha, FAST 2003): the keys, without data, of the last
evictions, as many as the cache holds.

A prefix is identified by one 64-bit *mark* for each block of tokens (at least 64, whole pages): a
hash of all tokens up to the block's end. Prompts shorter than a block, and the end of a prompt
after its last whole block, are not tracked. A block counts as evicted when its last page is.

Marks are stored in a table, indexed by their last bits, with the time of their eviction; time is
the number of blocks evicted so far. The table has 8 entries for each remembered block: a later mark
with the same index overwrites an earlier one, 1 in 16 on average, so the count is low by that
share. Adding and looking up take a few array operations, however many blocks there are.
"""

import numpy as np

from pando_worker.memory.tree_node import NO_MARKS, Marks, Tokens

MAX_PENDING = 256
NEVER = -(2**62)
# Arrays of no dimension: numpy would convert a scalar anew each time.
_GOLDEN, _FIRST, _SECOND, _S27, _S30, _S31 = (
    np.array(number, dtype=np.uint64)
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
        # Written, not only reserved, so that the first evictions cause no page faults.
        self._marks: Marks = np.full(places, 0, dtype=np.uint64)
        self._evicted_at = np.full(places, NEVER, dtype=np.int64)
        self._evicted = 0  # blocks so far
        self._pending: list[Marks] = []  # evicted, but not in the table yet
        # Multilinear hashing of a block with random odd weights, modulo 2^64. A word is two tokens.
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
            before: marks of the blocks that end earlier; only the last one is used.
            namespace: the key's namespace, which is hashed into its first mark.
        """
        size, first = self.block_tokens, start // self.block_tokens
        count = self.blocks(start, len(key))
        if count == 0:
            return NO_MARKS
        blocks = key[first * size : (first + count) * size].view(self._word).reshape(count, -1)
        sums = blocks @ self._weights
        index = np.arange(first + 1, first + count + 1, dtype=np.uint64)
        index *= _GOLDEN
        index += sums
        mixed = _mixed(index)
        if len(before):
            mixed[:1] += before[-1]
        elif namespace:
            mixed[:1] += np.frombuffer(namespace[:8], dtype=np.uint64)
        return mixed.cumsum()

    def add(self, marks: Marks) -> None:
        """Remember evicted blocks."""
        self._pending.append(marks)
        if len(self._pending) >= MAX_PENDING:
            self._store_pending()

    def count_hot(self, marks: Marks) -> int:
        """Tokens of the requested blocks that were evicted; each eviction is counted once."""
        self._store_pending()
        places = (marks & self._last_bits).view(np.int64)  # of which numpy makes no copy
        earliest = self._evicted - self._capacity
        found = (self._marks[places] == marks) & (self._evicted_at[places] >= earliest)
        self._evicted_at[places[found]] = NEVER
        return int(np.count_nonzero(found)) * self.block_tokens

    def clear(self) -> None:
        self._pending.clear()
        self._evicted_at.fill(NEVER)

    def _store_pending(self) -> None:
        if not self._pending:
            return
        marks = np.concatenate(self._pending)
        self._pending.clear()
        places = (marks & self._last_bits).view(np.int64)  # of which numpy makes no copy
        self._marks[places] = marks
        self._evicted_at[places] = np.arange(self._evicted, self._evicted + len(marks))
        self._evicted += len(marks)


def _mixed(x: Marks) -> Marks:
    """The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), in place."""
    x ^= x >> _S30
    x *= _FIRST
    x ^= x >> _S27
    x *= _SECOND
    x ^= x >> _S31
    return x
