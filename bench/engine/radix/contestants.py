"""The two caches behind one interface. Only `match`, `insert` and `evict` are timed: keys are
passed in the form that the design stores, and pages are taken and returned outside of the timing.
"""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from bench.engine.radix.list_cache import ListRadixCache, MaskPool
from pando_worker.memory.page_allocator import PageAllocator, Pages
from pando_worker.memory.radix_cache import RadixCache

Sequence = list[int]
T = TypeVar("T")


class Contestant(Protocol):
    @property
    def free_tokens(self) -> int: ...
    def match(self, sequence: Sequence) -> tuple[float, int]:
        """Seconds, and the number of tokens found."""
        ...

    def insert(self, sequence: Sequence) -> float:
        """Seconds. The cached part already has its pages; there are free ones for the rest."""
        ...

    def evict(self, tokens: int) -> float:
        """Seconds."""
        ...

    def make_room(self, tokens: int) -> float:
        """Evicts as its engine does before it takes `tokens` tokens. Seconds."""
        ...

    def take(self, tokens: int) -> None:
        """Takes free pages, like running requests."""
        ...

    def give_back(self) -> None:
        """Returns all pages that were taken."""
        ...


def timed(action: Callable[[], T]) -> tuple[T, float]:
    """The action's result, and its seconds of CPU."""
    started = time.thread_time()
    result = action()
    return result, time.thread_time() - started


class Pando:
    def __init__(self, capacity: int, page_size: int, policy: str = "lru") -> None:
        self.page_size = page_size
        self._allocator = PageAllocator(capacity // page_size)
        self._cache = RadixCache(self._allocator, page_size, policy=policy)
        self._taken: list[Pages] = []

    @property
    def free_tokens(self) -> int:
        return self._allocator.num_free * self.page_size

    def match(self, sequence: Sequence) -> tuple[float, int]:
        key = np.array(sequence, dtype=np.int32)
        match, seconds = timed(lambda: self._cache.match_prefix(key))
        return seconds, len(match.pages) * self.page_size

    def insert(self, sequence: Sequence) -> float:
        key = np.array(sequence, dtype=np.int32)
        cached = self._cache.match_prefix(key).pages
        new = self._allocator.alloc(len(key) // self.page_size - len(cached))
        pages = np.concatenate((cached, new))
        return timed(lambda: self._cache.insert(key, pages))[1]

    def evict(self, tokens: int) -> float:
        return timed(lambda: self._cache.evict(-(-tokens // self.page_size)))[1]

    def make_room(self, tokens: int) -> float:
        missing = tokens - self.free_tokens
        return self.evict(missing) if missing > 0 else 0.0

    def take(self, tokens: int) -> None:
        self._taken.append(self._allocator.alloc(tokens // self.page_size))

    def give_back(self) -> None:
        self._allocator.free(*self._taken)
        self._taken.clear()


class Lists:
    def __init__(self, capacity: int, page_size: int) -> None:
        self.page_size = page_size
        self._pool = MaskPool(capacity // page_size)
        self._cache = ListRadixCache(self._pool, page_size)
        self._taken: list[Tensor] = []

    @property
    def free_tokens(self) -> int:
        return self._pool.num_free * self.page_size

    def match(self, sequence: Sequence) -> tuple[float, int]:
        pages, seconds = timed(lambda: self._cache.match(sequence))
        return seconds, len(pages) * self.page_size

    def insert(self, sequence: Sequence) -> float:
        cached = self._cache.match(sequence)
        pages = torch.cat((cached, self._pool.alloc(len(sequence) // self.page_size - len(cached))))
        return timed(lambda: self._cache.insert(sequence, pages))[1]

    def evict(self, tokens: int) -> float:
        return timed(lambda: self._cache.evict(-(-tokens // self.page_size)))[1]

    def make_room(self, tokens: int) -> float:
        """SGLang evicted what was needed, not only what was missing."""
        return self.evict(tokens) if tokens > self.free_tokens else 0.0

    def take(self, tokens: int) -> None:
        self._taken.append(self._pool.alloc(tokens // self.page_size))

    def give_back(self) -> None:
        for pages in self._taken:
            self._pool.free(pages)
        self._taken.clear()
