"""The radix cache against a brute-force model: a dict of page prefixes with what is known of each.

The model knows nothing of nodes: to evict, it looks at all pages for the one that goes first. With
a host tier the pools' contents are modelled too, as arrays that hold the prefix each page stands
for: copies move them in the order of a batch, and what the tree says is where has to be there.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from pando_worker.memory.host_tier import HostTier
from pando_worker.memory.page_allocator import PageAllocator
from pando_worker.memory.radix_cache import Match, RadixCache, TreeNode

Prefix = tuple[int, ...]
UNWRITTEN: Prefix = (-1,)


@dataclass
class Entry:
    """One page on the device in the model, keyed by the whole prefix that ends with it."""

    page: int
    created: int
    used: int
    hits: int = 0
    locks: int = 0


class RadixCacheMachine(RuleBasedStateMachine):
    """Few tokens and long runs of them, so that prefixes are shared, split and extended."""

    num_pages = 24
    host_pages: ClassVar[list[int]] = [0]
    locks = Bundle("locks")

    keys = st.lists(st.integers(0, 1), max_size=7)

    @initialize(
        data=st.data(),
        page_size=st.sampled_from([1, 2, 3, 16]),
        policy=st.sampled_from(["lru", "lfu", "fifo"]),
        store_hits=st.sampled_from([None, 1, 2]),
    )
    def start(
        self, data: st.DataObject, page_size: int, policy: str, store_hits: int | None
    ) -> None:
        self.page_size = page_size
        self.policy = policy
        self.allocator = PageAllocator(self.num_pages)
        host_pages = data.draw(st.sampled_from(self.host_pages))
        self.pays = True
        self.host = None
        if host_pages:
            self.host = HostTier(
                host_pages, self.num_pages, store_hits=store_hits, pays=lambda copies: self.pays
            )
        self.cache = RadixCache(
            self.allocator, page_size, policy=policy, host=self.host, block_tokens=1
        )
        self.model: dict[Prefix, Entry] = {}
        self.was_stored: set[Prefix] = set()
        self.now = 0
        self.device_memory = [UNWRITTEN] * self.num_pages
        self.host_memory = [UNWRITTEN] * host_pages

    def key(self, bits: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """Each bit becomes two pages that are equal, of tokens that are equal but for the first."""
        page = [7] + [0] * (self.page_size - 1)
        tokens = [bit + token for bit in bits for _ in range(2) for token in page]
        return np.array(tokens, dtype=np.int32)

    def prefixes(self, key: np.ndarray) -> list[Prefix]:
        ends = range(self.page_size, len(key) + 1, self.page_size)
        return [tuple(key[:end].tolist()) for end in ends]

    def on_device(self, key: np.ndarray) -> list[Prefix]:
        found = []
        for prefix in self.prefixes(key):
            if prefix not in self.model:
                break
            found.append(prefix)
        return found

    def tick(self) -> int:
        self.now += 1
        return self.now

    def touch(self, path: list[Prefix]) -> None:
        self.tick()
        for prefix in path:
            self.model[prefix].used = self.now

    def children(self, prefix: Prefix) -> list[Prefix]:
        size = len(prefix) + self.page_size
        return [p for p in self.model if len(p) == size and p[: -self.page_size] == prefix]

    def evict_from_model(self, count: int) -> None:
        for _ in range(count):
            leaves = [p for p, e in self.model.items() if e.locks == 0 and not self.children(p)]
            del self.model[min(leaves, key=self.eviction_key)]

    def eviction_key(self, prefix: Prefix) -> tuple[int, ...]:
        entry = self.model[prefix]
        match self.policy:
            case "lru":
                return (entry.used,)
            case "lfu":
                return (entry.hits, entry.used)
            case _:
                return (entry.created,)

    @property
    def evictable(self) -> int:
        return sum(entry.locks == 0 for entry in self.model.values())

    @rule(bits=keys)
    def match(self, bits: list[int]) -> None:
        key = self.key(bits)
        path = self.on_device(key)
        length = self.cache.prefix_len(key)
        found = self.cache.match_prefix(key)
        assert found.pages.tolist() == [self.model[prefix].page for prefix in path]
        assert length == (len(path) + found.host_pages) * self.page_size == found.end.end
        assert found.node.end == len(path) * self.page_size
        self.touch(path)

    @rule(bits=keys)
    def insert(self, bits: list[int]) -> None:
        key = self.key(bits)
        path = self.prefixes(key)
        if self.allocator.num_free < len(path):
            return
        pages = self.allocator.alloc(len(path))
        for prefix, page in zip(path, pages.tolist(), strict=True):
            self.device_memory[page] = prefix
        known = len(self.on_device(key))
        assert self.cache.insert(key, pages) == known
        self.allocator.free(pages[:known])
        self.tick()
        # Where a page was on the host, its node has been there all the time, with its hits.
        nodes = self.cache.path(key)[1:]
        hits = {prefix: node.hits for node in nodes for prefix in self.of(node)}
        for prefix, page in zip(path[known:], pages[known:].tolist(), strict=True):
            self.model[prefix] = Entry(page, self.now, 0, hits[prefix])
            assert hits[prefix] == 0 or self.host
        self.touch(path)

    def of(self, node: TreeNode) -> list[Prefix]:
        """The prefixes that end with the node's pages."""
        parts = [each.key for each in node.path_up()]
        return self.prefixes(np.concatenate(parts[::-1]))[-node.num_pages :]

    @rule(target=locks, bits=keys, load=st.booleans())
    def admit(self, bits: list[int], load: bool) -> object:
        """As the KVManager does: match, lock, load, count."""
        key = self.key(bits)
        path = self.on_device(key)
        found = self.cache.match_prefix(key)
        self.touch(path)
        self.cache.inc_lock_ref(found.node)
        for prefix in path:
            self.model[prefix].locks += 1
        if (
            load
            and found.host_pages
            and found.host_pages <= self.allocator.num_free + self.evictable
        ):
            path, found = self.load(key, path, found)
        self.cache.count_use(key, found)
        for prefix in path:
            self.model[prefix].hits += 1
        return found.node, path

    def load(self, key: np.ndarray, path: list[Prefix], found: Match) -> tuple[list[Prefix], Match]:
        self.evict_from_model(max(0, found.host_pages - self.allocator.num_free))
        loaded = self.cache.load(found)
        self.cache.inc_lock_ref(loaded.node)
        self.cache.dec_lock_ref(found.node)
        whole = self.prefixes(key)[: len(loaded.pages)]
        assert whole[: len(path)] == path
        self.tick()
        hits = {prefix: node.hits for node in loaded.end.path_up() for prefix in self.of(node)}
        for prefix, page in zip(
            whole[len(path) :], loaded.pages[len(path) :].tolist(), strict=True
        ):
            self.model[prefix] = Entry(page, self.now, 0, hits[prefix], locks=1)
        self.touch(whole)
        return whole, loaded

    @rule(lock=consumes(locks))
    def unlock(self, lock: tuple[TreeNode, list[Prefix]]) -> None:
        node, path = lock
        self.cache.dec_lock_ref(node)
        self.tick()
        for prefix in path:
            entry = self.model[prefix]
            entry.locks -= 1
            if entry.locks == 0:
                entry.used = self.now

    @rule(count=st.integers(0, 10))
    def evict(self, count: int) -> None:
        count = min(count, self.evictable)
        assert self.cache.evict(count) == count
        self.evict_from_model(count)

    @rule(bits=keys)
    def back_up(self, bits: list[int]) -> None:
        if self.host:
            key = self.key(bits)
            self.cache.back_up(key)
            self.touch(self.on_device(key))

    @rule(pays=st.booleans())
    def rates_change(self, pays: bool) -> None:
        self.pays = pays

    @rule()
    def run_a_batch(self) -> None:
        """Copies, then a model that writes to all pages that nobody holds."""
        if not self.host:
            return
        stores, loads = self.host.take_copies()
        if stores:
            assert len(set(stores.host.tolist())) == len(stores.host)
            for host, page in zip(stores.host.tolist(), stores.device.tolist(), strict=True):
                self.host_memory[host] = self.device_memory[page]
        if loads:
            assert len(set(loads.device.tolist())) == len(loads.device)
            for host, page in zip(loads.host.tolist(), loads.device.tolist(), strict=True):
                self.device_memory[page] = self.host_memory[host]
        held = {
            page for node in self.cache.nodes() if node.pages is not None for page in node.pages
        }
        for page in set(range(self.num_pages)) - held:
            self.device_memory[page] = UNWRITTEN
        for node in self.cache.nodes():
            if node.pages is not None:
                assert [self.device_memory[page] for page in node.pages] == self.of(node)
            if node.host_pages is not None:
                assert [self.host_memory[page] for page in node.host_pages] == self.of(node)

    @precondition(lambda self: not any(entry.locks for entry in self.model.values()))
    @rule()
    def reset(self) -> None:
        self.cache.reset()
        self.model.clear()
        assert not list(self.cache.nodes())

    @rule(target=locks)
    def nothing(self) -> object:
        return multiple()

    @invariant()
    def every_device_page_has_one_owner(self) -> None:
        pages = [node.pages for node in self.cache.nodes() if node.pages is not None]
        in_tree = [page for each in pages for page in each.tolist()]
        assert sorted(in_tree) == sorted(entry.page for entry in self.model.values())
        assert (
            self.allocator.num_free + self.cache.evictable_pages + self.cache.protected_pages
            == self.num_pages
        )
        assert self.cache.evictable_pages == self.evictable

    @invariant()
    def every_host_page_has_one_owner(self) -> None:
        pages = [node.host_pages for node in self.cache.nodes() if node.host_pages is not None]
        in_tree = [page for each in pages for page in each.tolist()]
        assert len(set(in_tree)) == len(in_tree)
        if self.host:
            held = self.host.evictable_pages + self.host.loading_pages
            assert held == len(in_tree)
            assert held + self.host.allocator.num_free == self.host.allocator.num_pages

    @invariant()
    def nodes_are_whole_pages_and_the_device_holds_whole_prefixes(self) -> None:
        for node in self.cache.nodes():
            assert node.parent is not None
            assert len(node.key) == node.num_pages * self.page_size > 0
            assert node.end == node.parent.end + len(node.key)
            assert len(node.marks) == node.num_pages
            assert node.pages is None or node.parent.pages is not None
            on_device = [child for child in node.children.values() if child.pages is not None]
            assert node.device_children == len(on_device)
            for edge, child in node.children.items():
                assert child.parent is node
                assert edge == child.key[: self.page_size].tobytes()


class RadixCacheWithHostMachine(RadixCacheMachine):
    host_pages: ClassVar[list[int]] = [3, 12, 60]


TestRadixCache = RadixCacheMachine.TestCase
TestRadixCache.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRadixCacheWithHost = RadixCacheWithHostMachine.TestCase
TestRadixCacheWithHost.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


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
