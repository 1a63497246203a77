"""The radix cache equals a brute-force model under any sequence of operations."""

import random

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from pando_worker.memory.namespace import namespace
from pando_worker.memory.page_allocator import PageAllocator
from pando_worker.memory.radix_cache import RadixCache, TreeNode
from pando_worker.policies.eviction import EVICTION_POLICIES
from pando_worker.policies.eviction.fifo import FirstStored
from tests.examples import examples
from tests.worker.memory.cache_model import CheckedCache

WHAT = ["admit", "unlock", "begin", "batch", "evict", "other", "forget"]
WEIGHTS = [12, 12, 6, 3, 6, 3, 1]

# Few tokens and long runs of them, so that prefixes are shared, split and extended.
KEYS = st.lists(st.integers(0, 1), max_size=4)


class RadixCacheMachine(RuleBasedStateMachine):
    checked: CheckedCache

    @initialize(
        page_size=st.sampled_from([1, 2, 3, 16]),
        policy=st.sampled_from([*EVICTION_POLICIES]),
        store_hits=st.sampled_from([None, 1, 2]),
        host_pages=st.sampled_from([0, 3, 8, 20]),
    )
    def start(self, page_size: int, policy: str, store_hits: int | None, host_pages: int) -> None:
        self.checked = CheckedCache(
            page_size=page_size, policy=policy, store_hits=store_hits, host_pages=host_pages
        )

    @rule(bits=KEYS)
    def match(self, bits: list[int]) -> None:
        self.checked.match(bits)

    @rule(bits=KEYS.filter(bool))
    def begin(self, bits: list[int]) -> None:
        self.checked.begin(bits)

    @rule(pays=st.booleans())
    def run_a_batch(self, pays: bool) -> None:
        self.checked.run_a_batch(pays)

    @rule(bits=KEYS, load=st.booleans())
    def admit(self, bits: list[int], load: bool) -> None:
        self.checked.admit(bits, load)

    @precondition(lambda self: self.checked.locks)
    @rule(data=st.data())
    def unlock(self, data: st.DataObject) -> None:
        self.checked.unlock(data.draw(st.integers(0, len(self.checked.locks) - 1)))

    @rule(bits=KEYS, start=st.integers(0, 8))
    def forget(self, bits: list[int], start: int) -> None:
        self.checked.forget(bits, start)

    @rule(count=st.integers(0, 10))
    def evict(self, count: int) -> None:
        self.checked.evict(count)

    @rule(bits=KEYS)
    def back_up(self, bits: list[int]) -> None:
        self.checked.back_up(bits)

    @precondition(lambda self: not self.checked.locks)
    @rule()
    def reset(self) -> None:
        self.checked.reset()

    @invariant()
    def all_is_as_in_the_model(self) -> None:
        if hasattr(self, "checked"):
            self.checked.check()


TestRadixCache = RadixCacheMachine.TestCase
TestRadixCache.settings = settings(max_examples=examples(60), stateful_step_count=30)


@pytest.mark.parametrize("seed", range(40))
def test_long_random_runs_agree_with_the_model(seed: int) -> None:
    """Deeper than hypothesis gets: many copies queued, under pressure on both pools."""
    rng = random.Random(seed)
    checked = CheckedCache(
        page_size=rng.choice([1, 2, 64]),
        policy=rng.choice([*EVICTION_POLICIES]),
        store_hits=rng.choice([None, None, 1, 2]),
        host_pages=rng.choice([0, 4, 9, 16]),
    )
    for _ in range(250):
        bits = rng.choices([0, 1], k=rng.randint(1, 4))
        match rng.choices(WHAT, WEIGHTS):
            case ["admit"] if len(checked.locks) < 3:
                checked.admit(bits, load=rng.random() < 0.8)
            case ["unlock"] if checked.locks:
                checked.unlock(rng.randrange(len(checked.locks)))
            case ["begin"]:
                checked.begin(bits)
            case ["batch"]:
                checked.run_a_batch(pays=rng.random() < 0.9)
            case ["evict"]:
                checked.evict(rng.randint(1, 4))
            case ["other"]:
                checked.match(bits)
                checked.back_up(bits)
            case ["forget"]:
                checked.forget(bits, start=rng.randint(1, 8))
        checked.check()


def test_copies_that_nobody_needs_any_more_are_not_made() -> None:
    checked = CheckedCache(page_size=2, policy="lru", host_pages=8)
    assert checked.host is not None
    checked.begin([1, 0])
    checked.run_a_batch(pays=True)
    checked.evict(4)
    checked.reset()  # the four stores are in vain
    assert checked.host.take_copies() == (None, None)


def test_what_was_evicted_and_is_asked_for_again_soon_counts_as_hot() -> None:
    def request(start: int, space: bytes = b"") -> None:
        key = np.arange(start, start + 130, dtype=np.int32)
        match = cache.match_prefix(key, space)
        cache.inc_lock_ref(match.node)
        cache.count_use(key, match, space)
        cache.evict(130 - len(match.pages) - allocator.num_free)
        pages = np.concatenate((match.pages, allocator.alloc(130 - len(match.pages))))
        allocator.free(pages[len(match.pages) : cache.insert(key, pages, space).known])
        cache.dec_lock_ref(match.node)

    allocator = PageAllocator(260)
    cache = RadixCache(allocator, page_size=1, block_tokens=64)
    for start in (0, 1000, 2000):
        request(start)
    assert (cache.evicted_pages, cache.hot_evicted_tokens) == (130, 0)
    request(0)  # its two whole blocks of 64 tokens were evicted last
    assert (cache.evicted_pages, cache.hot_evicted_tokens) == (260, 128)
    for start in (3000, 4000, 5000):
        request(start)
    request(1000)  # evicted long ago: 520 tokens were evicted since, and the pool has 260
    assert cache.hot_evicted_tokens == 128
    request(4000, namespace("other", None))  # it was evicted last, but from another namespace
    assert cache.hot_evicted_tokens == 128
    request(4000)
    assert cache.hot_evicted_tokens == 256


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


@pytest.mark.parametrize("policy", [*EVICTION_POLICIES])
def test_a_large_pool_loses_some_pages_at_once_from_the_end_of_the_first_leaf(policy: str) -> None:
    allocator = PageAllocator(1024)
    cache = RadixCache(allocator, page_size=1, policy=policy)
    first, second = np.arange(512, dtype=np.int32), np.arange(512, 1024, dtype=np.int32)
    for key in (first, second):
        cache.insert(key, allocator.alloc(512))
    assert cache.evict(0) == 0
    assert [cache.evict(1), cache.evict(1), cache.evict(5)] == [4, 4, 5]
    assert (cache.prefix_len(first), cache.prefix_len(second)) == (499, 512)
    assert len(list(cache.nodes())) == 2  # no edge was split
    assert cache.evict(500) == 500
    assert (cache.prefix_len(first), cache.prefix_len(second)) == (0, 511)
    assert (allocator.num_free, cache.evicted_pages) == (513, 513)


@pytest.mark.parametrize("policy", [*EVICTION_POLICIES])
def test_what_a_policy_keeps_is_bounded_by_the_nodes_of_the_tree(policy: str) -> None:
    """Nodes are locked, hit and unlocked again and again; an order's entries for earlier states
    must not accumulate."""
    rng = random.Random(0)
    cache = RadixCache(PageAllocator(64), 1, policy=policy)
    keys = [tokens(first, *range(rng.randint(1, 6))) for first in range(8)]
    for key in keys:
        cache.insert(key, np.arange(len(key), dtype=np.int32))
    nodes = len(list(cache.nodes()))
    for _ in range(4000):
        key = rng.choice(keys)
        match = cache.match_prefix(key)
        cache.inc_lock_ref(match.node)
        cache.count_use(key, match)
        cache.dec_lock_ref(match.node)
        assert _num_entries(cache._order) <= 4 * nodes + 64


def _num_entries(thing: object) -> int:
    """The number of items in an eviction order's containers, including nested ones."""
    if isinstance(thing, TreeNode | int | tuple):
        return 0
    if isinstance(thing, dict):
        return len(thing) + sum(map(_num_entries, thing.values()))
    if isinstance(thing, list):
        return len(thing)
    return sum(map(_num_entries, vars(thing).values())) if hasattr(thing, "__dict__") else 0


def test_what_fifo_keeps_for_locked_pages_is_bounded_however_often_they_are_used() -> None:
    order = FirstStored[TreeNode]()
    root = TreeNode(None, tokens(), 0, b"")
    nodes = [TreeNode(root, tokens(1), 1, b"") for _ in range(8)]
    for node in nodes:
        order.add(node)
    longest = 0
    for _ in range(40):
        for node in nodes:
            order.discard(node)
            order.add(node)
            longest = max(longest, len(order._heap))
    assert longest == 2 * len(nodes) + 64, "and it is rarely sorted"
    assert {order.pop() for _ in nodes} == set(nodes)
