"""What a radix cache costs: match, insert and evict of 100k-token sequences among a million tokens.

Run: python bench/radix_cache.py [--out docs/benchmarks/radix-cache.md]. Compares Pando's cache
with `ListRadixCache`, the design that SGLang had at first, written anew for this benchmark: keys
are lists of ints, a match compares them token by token, and each eviction collects all leaves of
the tree into a heap by their last use. Both run in turn in one process, on the same sequences.
Times are CPU time of the one thread, so other work on the machine counts less.
"""

import argparse
import gc
import heapq
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from pando_worker.memory.page_allocator import PageAllocator, Pages
from pando_worker.memory.radix_cache import RadixCache

TREE_TOKENS = 1_000_000
LONG = 100_000  # tokens of a sequence that is matched, inserted or evicted
ROUNDS = 5
EVICTIONS = 32

Sequence = list[int]


class Cache(Protocol):
    """Takes sequences in the form in which its design keeps them."""

    def prepare(self, sequence: Sequence) -> object: ...
    def match(self, key: object) -> int: ...
    def insert(self, key: object) -> None: ...
    def evict(self, tokens: int) -> None: ...


class PandoCache:
    def __init__(self, capacity: int, page_size: int) -> None:
        self.page_size = page_size
        self._allocator = PageAllocator(capacity // page_size)
        self._cache = RadixCache(self._allocator, page_size)

    def prepare(self, sequence: Sequence) -> object:
        return np.array(sequence, dtype=np.int32)

    def match(self, key: object) -> int:
        assert isinstance(key, np.ndarray)
        return len(self._cache.match_prefix(key).pages) * self.page_size

    def insert(self, key: object) -> None:
        assert isinstance(key, np.ndarray)
        pages = self._allocator.alloc(len(key) // self.page_size)
        self._allocator.free(pages[: self._cache.insert(key, pages)])

    def evict(self, tokens: int) -> None:
        self._cache.evict(tokens // self.page_size)


@dataclass(eq=False)
class ListNode:
    parent: "ListNode | None"
    key: list[int]
    pages: Pages
    used: float = field(default_factory=time.monotonic)
    children: dict[tuple[int, ...], "ListNode"] = field(default_factory=dict)

    def __lt__(self, other: "ListNode") -> bool:
        return self.used < other.used


class ListRadixCache:
    def __init__(self, capacity: int, page_size: int) -> None:
        self.page_size = page_size
        self.root = ListNode(None, [], np.empty(0, dtype=np.int32))
        self._allocator = PageAllocator(capacity // page_size)

    def prepare(self, sequence: Sequence) -> object:
        return sequence

    def match(self, key: object) -> int:
        assert isinstance(key, list)
        _, pages = self._descend(key)
        return len(np.concatenate(pages) if pages else pages) * self.page_size

    def insert(self, key: object) -> None:
        assert isinstance(key, list)
        node, pages = self._descend(key)
        rest = key[sum(map(len, pages)) * self.page_size :]
        if rest:
            taken = self._allocator.alloc(len(rest) // self.page_size)
            node.children[tuple(rest[: self.page_size])] = ListNode(node, rest, taken)

    def evict(self, tokens: int) -> None:
        leaves = self._leaves()
        heapq.heapify(leaves)
        freed = 0
        while freed < tokens and leaves:
            leaf = heapq.heappop(leaves)
            parent = leaf.parent
            assert parent is not None
            self._allocator.free(leaf.pages)
            freed += len(leaf.key)
            del parent.children[tuple(leaf.key[: self.page_size])]
            if not parent.children and parent is not self.root:
                heapq.heappush(leaves, parent)

    def _leaves(self) -> list[ListNode]:
        stack, leaves = [self.root], []
        while stack:
            node = stack.pop()
            if node.children:
                stack.extend(node.children.values())
            elif node is not self.root:
                leaves.append(node)
        return leaves

    def _descend(self, key: list[int]) -> tuple[ListNode, list[Pages]]:
        node, pages, rest = self.root, list[Pages](), key
        while child := node.children.get(tuple(rest[: self.page_size])):
            same = self._same(child.key, rest)
            if same < len(child.key):
                child = self._split(child, same)
            child.used = time.monotonic()
            pages.append(child.pages)
            node, rest = child, rest[same:]
        return node, pages

    def _same(self, a: list[int], b: list[int]) -> int:
        size, same = self.page_size, 0
        if size == 1:
            for x, y in zip(a, b, strict=False):
                if x != y:
                    break
                same += 1
            return same
        while same < min(len(a), len(b)) and a[same : same + size] == b[same : same + size]:
            same += size
        return same

    def _split(self, node: ListNode, at: int) -> ListNode:
        assert node.parent is not None
        cut = at // self.page_size
        upper = ListNode(node.parent, node.key[:at], node.pages[:cut])
        node.parent.children[tuple(upper.key[: self.page_size])] = upper
        node.parent, node.key, node.pages = upper, node.key[at:], node.pages[cut:]
        upper.children[tuple(node.key[: self.page_size])] = node
        return upper


@dataclass(frozen=True)
class Workload:
    """A tree of many prompts that share system prompts, and long sequences beside them."""

    fill: list[Sequence]
    long: list[Sequence]

    @classmethod
    def make(cls, seed: int, page_size: int) -> "Workload":
        rng = np.random.default_rng(seed)

        def tokens(count: int) -> Sequence:
            ids: Sequence = rng.integers(128_000, size=count // page_size * page_size).tolist()
            return ids

        systems = [tokens(1_024) for _ in range(16)]
        lengths = rng.integers(64, 449, size=3_840).tolist()
        fill = [systems[n % 16] + tokens(length) for n, length in enumerate(lengths)]
        return cls(fill, [tokens(LONG) for _ in range(2)])


Timings = dict[str, float]  # seconds


def timed(action: Callable[[], object]) -> float:
    started = time.thread_time()
    action()
    return time.thread_time() - started


def evict_often(cache: Cache, tokens: int) -> float:
    """Seconds of one of many evictions."""

    def evictions() -> None:
        for _ in range(EVICTIONS):
            cache.evict(tokens)

    return timed(evictions) / EVICTIONS


def measure(cache: Cache, load: Workload) -> Timings:
    """Once over a fresh cache. Times are of one call."""
    timings: Timings = {}
    for sequence in load.fill:
        cache.insert(cache.prepare(sequence))
    first, second = (cache.prepare(sequence) for sequence in load.long)
    half = cache.prepare(load.long[0][: LONG // 2] + load.long[1][: LONG // 2])
    timings["insert 100,000 new tokens"] = timed(lambda: cache.insert(first))
    timings["match 100,000 tokens, all cached"] = timed(lambda: cache.match(first))
    timings["insert 100,000 tokens, half of them cached"] = timed(lambda: cache.insert(half))
    timings["match 100,000 tokens, none cached"] = timed(lambda: cache.match(second))
    timings["evict 16 tokens"] = evict_often(cache, 16)
    timings["evict 4,096 tokens"] = evict_often(cache, 4_096)
    timings["evict 100,000 tokens"] = timed(lambda: cache.evict(LONG))
    # What is left of the short prompts is used; then the long ones go first, whole.
    for sequence in load.fill:
        cache.match(cache.prepare(sequence))
    timings["evict a sequence of 100,000 tokens"] = timed(lambda: cache.evict(LONG))
    return timings


def table(page_size: int) -> list[str]:
    capacity = TREE_TOKENS * 3 // 2 // page_size * page_size
    rounds: list[tuple[Timings, Timings]] = []
    for number in range(ROUNDS):
        load = Workload.make(number, page_size)
        gc.collect()
        gc.disable()
        pando = measure(PandoCache(capacity, page_size), load)
        lists = measure(ListRadixCache(capacity, page_size), load)
        gc.enable()
        rounds.append((pando, lists))
    lines = [
        f"| page size {page_size} | lists and heaps, µs | Pando, µs | ratio (least) |",
        "|---|---|---|---|",
    ]
    for name in rounds[0][0]:
        ratios = [lists[name] / pando[name] for pando, lists in rounds]
        old = statistics.median(lists[name] for _, lists in rounds)
        new = statistics.median(pando[name] for pando, _ in rounds)
        lines.append(
            f"| {name} | {old * 1e6:,.0f} | {new * 1e6:,.1f} |"
            f" {statistics.median(ratios):,.1f} ({min(ratios):,.1f}) |"
        )
    return lines


def machine() -> str:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"Python {platform.python_version()}, numpy {np.__version__}, one core of {cpu}"


TEXT = """# What the radix cache costs

    python bench/radix_cache.py --out docs/benchmarks/radix-cache.md

CPU time of one call on a tree of about a million tokens: 3,840 prompts of 1,088 to 1,472 tokens
that share 16 system prompts, and the long sequences. *Lists and heaps* is SGLang's original design,
written anew for this comparison: lists of ints as keys, compared token by token, and an eviction
that first collects all leaves of the tree into a heap. It evicts whole leaves; Pando's cuts the
last one to what is needed. Both free pages through Pando's allocator. Medians of {rounds} rounds,
each on fresh trees, both designs in turn on the same sequences; a ratio is the median of the
rounds' ratios, with the least of them in brackets.

{tables}

16 tokens are what a step of 16 streams takes from a full pool at page size 1; 4,096 are a chunk
of a prompt. Collecting the leaves costs the same however little is evicted, so the ratio falls with
what is evicted at once: taking out each leaf (about 256 tokens here) and freeing its pages is work
that both designs have to do.

{machine}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="write the page there instead of printing it")
    out: Path | None = parser.parse_args().out
    tables = "\n\n".join("\n".join(table(page_size)) for page_size in (1, 16))
    text = TEXT.format(rounds=ROUNDS, tables=tables, machine=machine())
    if out:
        out.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
