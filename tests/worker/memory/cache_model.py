"""A radix cache beside a brute-force model, a dict from page prefixes to their state.

The model has no nodes: to evict, it searches all pages for the first victim. Memory is modelled as
arrays with the prefix that each page holds. Copies move them in the order of a batch, and every
page must hold the prefix that the tree assigns to it.
"""

from dataclasses import dataclass

import numpy as np

from pando_worker.memory.host_tier import HostTier
from pando_worker.memory.page_allocator import PageAllocator
from pando_worker.memory.radix_cache import Match, RadixCache, TreeNode

Prefix = tuple[int, ...]
UNWRITTEN: Prefix = (-1,)


@dataclass
class Entry:
    """A page on the device in the model; its key is the whole prefix that ends with it."""

    page: int
    created: int
    used: int
    hits: int = 0
    locks: int = 0
    is_forgotten: bool = False  # no longer in any prefix, but locked


class CheckedCache:
    """A radix cache, the model, and memory; every operation compares what it can."""

    def __init__(
        self,
        *,
        page_size: int,
        policy: str,
        store_hits: int | None = None,
        num_pages: int = 12,
        host_pages: int = 0,
    ) -> None:
        self.page_size = page_size
        self.policy = policy
        self.allocator = PageAllocator(num_pages)
        self.pays = True
        self.host = None
        if host_pages:
            self.host = HostTier(
                host_pages, num_pages, store_hits=store_hits, pays=lambda copies: self.pays
            )
        self.cache = RadixCache(
            self.allocator, page_size, policy=policy, host=self.host, block_tokens=1
        )
        self.model: dict[Prefix, Entry] = {}
        self.begun: list[tuple[np.ndarray, np.ndarray]] = []
        self.locks: list[tuple[TreeNode, list[Entry]]] = []
        self.now = 0
        self.device_memory = [UNWRITTEN] * num_pages
        self.host_memory = [UNWRITTEN] * host_pages

    def key(self, bits: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """Each bit becomes two equal pages, whose tokens are equal except the first."""
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
            case "fifo":
                return (entry.created,)
        raise NotImplementedError(f"the model does not know {self.policy}")

    @property
    def evictable(self) -> int:
        return sum(entry.locks == 0 for entry in self.model.values())

    def match(self, bits: list[int]) -> None:
        key = self.key(bits)
        path = self.on_device(key)
        length = self.cache.prefix_len(key)
        found = self.cache.match_prefix(key)
        assert found.pages.tolist() == [self.model[prefix].page for prefix in path]
        assert length == (len(path) + found.host_pages) * self.page_size == found.end.end
        assert found.node.end == len(path) * self.page_size
        self.touch(path)

    def begin(self, bits: list[int]) -> None:
        """Take pages for a sequence; the next batch computes it."""
        key = self.key(bits)
        count = len(key) // self.page_size
        if self.allocator.num_free + self.evictable < count:
            return
        shortage = max(0, count - self.allocator.num_free)
        assert self.cache.evict(shortage) == shortage
        self.evict_from_model(shortage)
        self.begun.append((key, self.allocator.alloc(count)))

    def run_a_batch(self, pays: bool) -> None:
        self.pays = pays
        self.copy()
        owned = {page for _, pages in self.begun for page in pages.tolist()}
        held = {entry.page for entry in self.model.values()}
        for page in set(range(self.allocator.num_pages)) - held - owned:
            self.device_memory[page] = UNWRITTEN
        for key, pages in self.begun:
            for prefix, page in zip(self.prefixes(key), pages.tolist(), strict=True):
                self.device_memory[page] = prefix
        for node in self.cache.nodes():
            if node.pages is not None:
                assert [self.device_memory[page] for page in node.pages] == self.of(node)
            if node.host_pages is not None:
                assert [self.host_memory[page] for page in node.host_pages] == self.of(node)
        begun, self.begun = self.begun, []
        for key, pages in begun:
            self.insert(key, pages)

    def copy(self) -> None:
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

    def insert(self, key: np.ndarray, pages: np.ndarray) -> None:
        path = self.prefixes(key)
        known = len(self.on_device(key))
        assert self.cache.insert(key, pages).known == known
        self.allocator.free(pages[:known])
        self.tick()
        # A node whose page was on the host has existed all the time and keeps its hits.
        nodes = self.cache.path(key)[1:]
        hits = {prefix: node.hits for node in nodes for prefix in self.of(node)}
        for prefix, page in list(zip(path, pages.tolist(), strict=True))[known:]:
            self.model[prefix] = Entry(page, self.now, 0, hits[prefix])
            assert hits[prefix] == 0 or self.host
        self.touch(path)

    def of(self, node: TreeNode) -> list[Prefix]:
        """The prefixes that end with the node's pages."""
        parts = [each.key for each in node.path_up()]
        return self.prefixes(np.concatenate(parts[::-1]))[-node.num_pages :]

    def admit(self, bits: list[int], load: bool) -> None:
        """Like the KVManager: match, lock, load, count."""
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
        self.locks.append((found.node, [self.model[prefix] for prefix in path]))

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

    def unlock(self, which: int) -> None:
        node, path = self.locks.pop(which)
        self.cache.dec_lock_ref(node)
        self.tick()
        for entry in path:
            entry.locks -= 1
            if entry.locks == 0:
                entry.used = self.now

    def forget(self, bits: list[int], start: int) -> None:
        key = self.key(bits)
        before = self.on_device(key[: start * self.page_size])
        start *= self.page_size
        self.cache.forget(key, start)
        self.touch(before)
        first = tuple(key[: start + self.page_size])
        for prefix in list(self.model):
            if start < len(key) and prefix[: start + self.page_size] == first:
                self.model.pop(prefix).is_forgotten = True

    def evict(self, count: int) -> None:
        count = min(count, self.evictable)
        assert self.cache.evict(count) == count
        self.evict_from_model(count)

    def back_up(self, bits: list[int]) -> None:
        if self.host:
            key = self.key(bits)
            self.cache.back_up(key)
            self.touch(self.on_device(key))

    def reset(self) -> None:
        self.cache.reset()
        self.model.clear()
        assert not list(self.cache.nodes())

    def every_device_page_has_one_owner(self) -> None:
        pages = [node.pages for node in self.cache.nodes() if node.pages is not None]
        in_tree = [page for each in pages for page in each.tolist()]
        assert sorted(in_tree) == sorted(entry.page for entry in self.model.values())
        begun = sum(len(pages) for _, pages in self.begun)
        held = self.cache.evictable_pages + self.cache.protected_pages
        assert self.allocator.num_free + held + begun == self.allocator.num_pages
        entries = {id(entry): entry for _, path in self.locks for entry in path}
        forgotten = sum(entry.is_forgotten for entry in entries.values())
        assert held == len(in_tree) + forgotten
        assert self.cache.evictable_pages == self.evictable

    def every_host_page_has_one_owner(self) -> None:
        locked = {each for node, _ in self.locks for each in node.path_up() if each.is_forgotten}
        nodes = [*self.cache.nodes(), *locked]
        pages = [node.host_pages for node in nodes if node.host_pages is not None]
        in_tree = [page for each in pages for page in each.tolist()]
        assert len(set(in_tree)) == len(in_tree)
        if self.host:
            held = self.host.evictable_pages + self.host.loading_pages
            assert held == len(in_tree)
            assert held + self.host.allocator.num_free == self.host.allocator.num_pages

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

    def check(self) -> None:
        self.every_device_page_has_one_owner()
        self.every_host_page_has_one_owner()
        self.nodes_are_whole_pages_and_the_device_holds_whole_prefixes()
