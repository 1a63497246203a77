"""The hottest prompt prefixes of each pool and requests that can replay them, in bounded memory.

A compressed radix tree over chunk keys, one per pool. Every node counts the requests that passed
through it, so a system prompt shared by a thousand different prompts is one heavy node, wherever it
ends. Only leaves keep a request (its unchanged body); an inner node is the beginning of the prompts
of the leaves below it.

Counts follow Space-Saving (Metwally, Agrawal and El Abbadi, 2005): when memory is short, the
lightest leaf is dropped, and a new prefix starts with the weight of the heaviest leaf ever dropped.
So a prefix that is missing here was requested at most that often, and no count is too low; `error`
bounds how much a count may be too high. Old requests count less, by forward decay (Cormode,
Shkapenyuk, Srivastava and Xu, 2009): a request weighs 2^(time / half-life), so weights can be
compared directly and need no updates as time passes.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

from pando_fleet.placement.prefix import KEY_BYTES
from pando_router.api_keys.tenant import OPEN, Tenant

HALF_LIFE_S = 600.0  # how long an untouched path stays in the shared tree
NODE_BYTES = 640  # measured: a node with its entries in its parent and in the heap
SOURCE_BYTES = 320  # a source without its body
LARGEST_PART = 8  # a request larger than this fraction of the memory (1/8) is not kept
_RESCALE_AT = 500.0  # half-lives; far below the largest exponent of a double


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request that can be sent again: the body that a replica received."""

    path: str
    body: bytes
    name: str  # the model or adapter that served it
    tenant: Tenant = OPEN  # the namespace of its prefixes

    @property
    def size(self) -> int:
        return SOURCE_BYTES + len(self.body)


@dataclass(frozen=True, slots=True)
class HotPrefix:
    """A prefix by its chunk keys, its request count, and one request that has it."""

    keys: bytes
    own_keys: bytes  # the part of `keys` beyond the next shorter prefix
    requests: float  # decayed; a lower bound
    source: SentRequest


class _Node:
    __slots__ = ("children", "edge", "error", "parent", "queued", "source", "weight")

    def __init__(self, edge: bytes, parent: "_Node | None", weight: float, error: float) -> None:
        self.edge = edge  # keys from the parent to here
        self.parent = parent  # None for a pool's root and for a dropped node
        self.weight = weight
        self.error = error
        self.children: dict[bytes, _Node] = {}  # by the first key of their edge
        self.source: SentRequest | None = None  # set for leaves only
        self.queued = False  # is in the heap of leaves


class HotPrefixes:
    """Call `observe` for each request, and read the `hottest`. `clock` returns seconds."""

    def __init__(self, limit_bytes: int, clock: Callable[[], float]) -> None:
        self._limit = limit_bytes
        self._clock = clock
        self._origin = clock()
        self._floor = 0.0  # weight of the heaviest leaf dropped; an unknown prefix weighs no more
        self._roots: dict[str, _Node] = {}
        self._leaves: list[tuple[float, int, _Node]] = []  # a heap; may lag behind weights
        self._order = count()
        self.bytes = 0

    def observe(self, pool: str, keys: bytes, source: SentRequest) -> None:
        """Counts a request of `pool` whose prompt has the packed chunk keys `keys`."""
        if not keys or len(keys) + source.size + 2 * NODE_BYTES > self._limit // LARGEST_PART:
            return
        gain = self._gain()
        root = self._roots.get(pool)
        if root is None:
            root = self._roots[pool] = _Node(b"", None, 0.0, 0.0)
        root.weight += gain
        node, depth = root, 0
        while depth < len(keys):
            child = node.children.get(keys[depth : depth + KEY_BYTES])
            if child is None:
                child = self._add(node, keys[depth:], gain)
            else:
                common = _common(child.edge, keys, depth)
                if common < len(child.edge):
                    child = self._split(child, common)
                child.weight += gain
            node, depth = child, depth + len(child.edge)
        if not node.children:
            self._give(node, source)
        self._shrink()

    def hottest(self, pool: str, least_requests: float = 1.0) -> Iterator[HotPrefix]:
        """Prefixes with at least `least_requests` requests, hottest first.

        A prefix comes before those that extend it. The tree must not change meanwhile.
        """
        gain = self._gain()
        root = self._roots.get(pool)
        found = [] if root is None else [(0.0, 0, b"", root)]
        number = count(1)
        while found:
            _, _, path, node = heapq.heappop(found)
            if node.parent is not None:
                yield HotPrefix(path, node.edge, (node.weight - node.error) / gain, _source(node))
            for child in node.children.values():
                requests = child.weight - child.error
                # Slightly less, because a decayed sum of powers is rarely exact.
                if requests >= least_requests * gain * (1 - 1e-9):
                    heapq.heappush(found, (-requests, next(number), path + child.edge, child))

    def _gain(self) -> float:
        """The weight of a request that arrives now."""
        half_lives = (self._clock() - self._origin) / HALF_LIFE_S
        if half_lives > _RESCALE_AT:
            self._rescale(2.0**-half_lives)
            self._origin, half_lives = self._clock(), 0.0
        return float(2.0**half_lives)

    def _rescale(self, factor: float) -> None:
        self._floor *= factor
        nodes = list(self._roots.values())
        while nodes:
            node = nodes.pop()
            node.weight *= factor
            node.error *= factor
            nodes += node.children.values()
        self._leaves = [(weight * factor, number, node) for weight, number, node in self._leaves]

    def _add(self, parent: _Node, edge: bytes, gain: float) -> _Node:
        # A prefix is never counted as more frequent than its own beginning.
        weight = min(self._floor + gain, parent.weight)
        node = _Node(edge, parent, weight, weight - gain)
        parent.children[edge[:KEY_BYTES]] = node
        self._take_source(parent)
        self.bytes += NODE_BYTES + len(edge)
        self._queue(node)
        return node

    def _split(self, node: _Node, at: int) -> _Node:
        """Splits an edge by a new node, which has the weight of the edge's end."""
        parent = node.parent
        assert parent is not None
        middle = _Node(node.edge[:at], parent, node.weight, node.error)
        parent.children[node.edge[:KEY_BYTES]] = middle
        node.edge, node.parent = node.edge[at:], middle
        middle.children[node.edge[:KEY_BYTES]] = node
        self.bytes += NODE_BYTES
        return middle

    def _give(self, node: _Node, source: SentRequest | None) -> None:
        self._take_source(node)
        node.source = source
        if source is not None:
            self.bytes += source.size

    def _take_source(self, node: _Node) -> None:
        if node.source is not None:
            self.bytes -= node.source.size
            node.source = None

    def _queue(self, node: _Node) -> None:
        if not node.queued:
            node.queued = True
            heapq.heappush(self._leaves, (node.weight, next(self._order), node))

    def _shrink(self) -> None:
        """Drops the lightest leaves until the rest fits."""
        while self.bytes > self._limit:
            weight, _, node = heapq.heappop(self._leaves)
            node.queued = False
            if node.children:
                continue  # it is queued again when it becomes a leaf
            if node.weight > weight:
                self._queue(node)
                continue
            self._drop(node)

    def _drop(self, leaf: _Node) -> None:
        parent, source = leaf.parent, leaf.source
        assert parent is not None
        self._floor = max(self._floor, leaf.weight)
        self._take_source(leaf)
        del parent.children[leaf.edge[:KEY_BYTES]]
        leaf.parent = None
        self.bytes -= NODE_BYTES + len(leaf.edge)
        if parent.parent is not None and not parent.children:
            self._give(parent, source)  # its prompt begins with the parent's prefix
            self._queue(parent)


def _common(edge: bytes, keys: bytes, depth: int) -> int:
    """The length in bytes, in whole keys, that `edge` shares with `keys` from `depth` on."""
    if keys.startswith(edge, depth):
        return len(edge)
    held, missing = 0, len(edge) // KEY_BYTES
    while missing - held > 1:  # the first key is common, so that the edge was found
        middle = (held + missing) // 2
        if keys.startswith(edge[: middle * KEY_BYTES], depth):
            held = middle
        else:
            missing = middle
    return held * KEY_BYTES


def _source(node: _Node) -> SentRequest:
    while node.source is None:
        node = next(iter(node.children.values()))
    return node.source
