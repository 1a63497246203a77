"""The radix cache against a brute-force model: a dict of page prefixes with their last use."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from pando_worker.memory.page_allocator import PageAllocator
from pando_worker.memory.radix_cache import RadixCache, TreeNode

Prefix = tuple[int, ...]


@dataclass
class Entry:
    """One cached page in the model, keyed by the whole prefix that ends with it."""

    page: int
    used: int
    locks: int = 0


class RadixCacheMachine(RuleBasedStateMachine):
    """Few tokens and long runs of them, so that prefixes are shared, split and extended."""

    page_size = 2
    num_pages = 24
    locks = Bundle("locks")

    def __init__(self) -> None:
        super().__init__()
        self.allocator = PageAllocator(self.num_pages)
        self.cache = RadixCache(self.allocator, self.page_size)
        self.model: dict[Prefix, Entry] = {}
        self.now = 0

    keys = st.lists(st.integers(0, 1), max_size=14).map(
        lambda bits: [b for b in bits for _ in "ab"]
    )

    def prefixes(self, key: list[int]) -> list[Prefix]:
        ends = range(self.page_size, len(key) + 1, self.page_size)
        return [tuple(key[:end]) for end in ends]

    def matched(self, key: list[int]) -> list[Prefix]:
        found = []
        for prefix in self.prefixes(key):
            if prefix not in self.model:
                break
            found.append(prefix)
        return found

    def touch(self, path: list[Prefix]) -> None:
        self.now += 1
        for prefix in path:
            self.model[prefix].used = self.now

    @rule(key=keys)
    def match(self, key: list[int]) -> None:
        expected = self.matched(key)
        array = np.array(key, dtype=np.int32)
        assert self.cache.prefix_len(array) == len(expected) * self.page_size
        found = self.cache.match_prefix(array)
        assert found.pages.tolist() == [self.model[prefix].page for prefix in expected]
        self.touch(expected)

    @rule(key=keys)
    def insert(self, key: list[int]) -> None:
        path = self.prefixes(key)
        if self.allocator.num_free < len(path):
            return
        pages = self.allocator.alloc(len(path))
        known = self.cache.insert(np.array(key, dtype=np.int32)[: len(path) * 2], pages)
        assert known == len(self.matched(key))
        self.allocator.free(pages[:known])
        for prefix, page in zip(path[known:], pages[known:].tolist(), strict=True):
            self.model[prefix] = Entry(page, 0)
        self.touch(path)

    @rule(target=locks, key=keys)
    def lock(self, key: list[int]) -> tuple[TreeNode, list[Prefix]]:
        path = self.matched(key)
        found = self.cache.match_prefix(np.array(key, dtype=np.int32))
        self.touch(path)
        self.cache.inc_lock_ref(found.node)
        for prefix in path:
            self.model[prefix].locks += 1
        return found.node, path

    @rule(lock=consumes(locks))
    def unlock(self, lock: tuple[TreeNode, list[Prefix]]) -> None:
        node, path = lock
        self.cache.dec_lock_ref(node)
        self.now += 1
        for prefix in path:
            entry = self.model[prefix]
            entry.locks -= 1
            if entry.locks == 0:
                entry.used = self.now

    @rule(count=st.integers(0, 10))
    def evict(self, count: int) -> None:
        unlocked = [prefix for prefix, entry in self.model.items() if entry.locks == 0]
        oldest_leaf_first = sorted(unlocked, key=lambda p: (self.model[p].used, -len(p)))
        assert self.cache.evict(count) == min(count, len(unlocked))
        for prefix in oldest_leaf_first[:count]:
            del self.model[prefix]

    @rule(target=locks)
    def nothing(self) -> object:
        return multiple()

    @invariant()
    def every_page_has_one_owner(self) -> None:
        in_tree = [page for node in self.cache.nodes() for page in node.pages.tolist()]
        assert sorted(in_tree) == sorted(entry.page for entry in self.model.values())
        assert (
            self.allocator.num_free + self.cache.evictable_pages + self.cache.protected_pages
            == self.num_pages
        )

    @invariant()
    def locks_and_counters_agree_with_the_model(self) -> None:
        protected = sum(entry.locks > 0 for entry in self.model.values())
        assert self.cache.protected_pages == protected
        assert self.cache.evictable_pages == len(self.model) - protected

    @invariant()
    def edges_are_whole_pages_and_siblings_differ(self) -> None:
        for node in self.cache.nodes():
            assert len(node.key) == len(node.pages) * self.page_size > 0
            for edge, child in node.children.items():
                assert child.parent is node
                assert edge == child.key[: self.page_size].tobytes()


TestRadixCache = RadixCacheMachine.TestCase
TestRadixCache.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def tokens(*ids: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(ids, dtype=np.int32)


def test_reset_forgets_everything_but_not_under_a_lock() -> None:
    allocator = PageAllocator(4)
    cache = RadixCache(allocator, page_size=1)
    cache.insert(tokens(1, 2), allocator.alloc(2))
    node = cache.match_prefix(tokens(1)).node
    cache.inc_lock_ref(node)
    with pytest.raises(RuntimeError, match="1 tokens \\[1\\] in 1 pages, lock_ref 1"):
        cache.reset()
    cache.dec_lock_ref(node)
    cache.reset()
    assert cache.prefix_len(tokens(1, 2)) == 0
    assert allocator.num_free == 4


def test_pretty_print_shows_the_branches() -> None:
    allocator = PageAllocator(8)
    cache = RadixCache(allocator, page_size=1)
    cache.insert(tokens(1, 2, 3), allocator.alloc(3))
    cache.insert(tokens(1, 2, 4), allocator.alloc(3))
    assert cache.pretty_print().splitlines() == [
        "root, 4 evictable and 0 locked pages",
        "  2 tokens [1 2] in 2 pages, lock_ref 0",
        "    1 tokens [4] in 1 pages, lock_ref 0",
        "    1 tokens [3] in 1 pages, lock_ref 0",
    ]


def test_a_page_freed_twice_is_refused() -> None:
    allocator = PageAllocator(4)
    pages = allocator.alloc(2)
    allocator.free(pages)
    with pytest.raises(ValueError, match="freed twice"):
        allocator.free(pages)


def test_more_pages_than_are_free_are_refused() -> None:
    with pytest.raises(MemoryError, match="5 pages wanted, 4 of 4 are free"):
        PageAllocator(4).alloc(5)
