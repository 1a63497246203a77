"""The hottest prompt prefixes of each pool and requests that can replay them, in bounded memory.

A compressed radix tree over chunk keys, one a pool: every node counts the requests that came
through it, so a system prompt that a thousand different prompts share is one heavy node, wherever
it ends. Only leaves hold a request (its body, as it came): what lies above a leaf is a beginning of
that request's prompt.

Counts are Space-Saving's (Metwally, Agrawal and El Abbadi, 2005): where room is needed the lightest
leaf goes, and what comes new is taken to have come as often as the heaviest that ever went. So a
prefix that is not here was seen at most that often, and none is counted too low; `error` bounds by
how much one may be counted too high. Old requests count less, by forward decay (Cormode,
Shkapenyuk, Srivastava and Xu, 2009): a request weighs 2^(time / half-life), which is compared as it
is and needs no updates as time goes by.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

from pando_fleet.placement.prefix import KEY_BYTES
from pando_router.api_keys.tenant import OPEN, Tenant

HALF_LIFE_S = 600.0  # as long as a path stays in the shared tree without being touched
NODE_BYTES = 640  # a node with its place in its parent and in the heap, as measured
SOURCE_BYTES = 320  # a source without its body
LARGEST_PART = 8  # a request larger than this part of the memory is not kept
_RESCALE_AT = 500.0  # half-lives, well within a double's exponent


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request that can be sent again, by the body that a replica got."""

    path: str
    body: bytes
    name: str  # the model or adapter that served it
    tenant: Tenant = OPEN  # in whose name space it is

    @property
    def size(self) -> int:
        return SOURCE_BYTES + len(self.body)


@dataclass(frozen=True, slots=True)
class HotPrefix:
    """A prefix by the keys of its chunks, how many requests had it, and one of those."""

    keys: bytes
    own_keys: bytes  # the end of `keys`, behind the next shorter prefix
    requests: float  # decayed; at least so many
    source: SentRequest


class _Node:
    __slots__ = ("children", "edge", "error", "parent", "queued", "source", "weight")

    def __init__(self, edge: bytes, parent: "_Node | None", weight: float, error: float) -> None:
        self.edge = edge  # keys from the parent to here
        self.parent = parent  # None for a pool's root, and for what was dropped
        self.weight = weight
        self.error = error
        self.children: dict[bytes, _Node] = {}  # by the first key of their edge
        self.source: SentRequest | None = None  # leaves have one, others none
        self.queued = False  # is in the heap of leaves


class HotPrefixes:
    """`observe` requests, then ask for the `hottest`. `clock` gives seconds."""

    def __init__(self, limit_bytes: int, clock: Callable[[], float]) -> None:
        self._limit = limit_bytes
        self._clock = clock
        self._origin = clock()
        self._floor = 0.0  # the heaviest leaf that was dropped: what is unknown weighs no more
        self._roots: dict[str, _Node] = {}
        self._leaves: list[tuple[float, int, _Node]] = []  # a heap; weights may have grown since
        self._order = count()
        self.bytes = 0

    def observe(self, pool: str, keys: bytes, source: SentRequest) -> None:
        """One request of `pool` whose prompt has the packed chunk keys `keys`."""
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
        """Prefixes that at least so many requests had, hottest first.

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
                # A hair less: what decayed and came back as a sum of powers is rarely exact.
                if requests >= least_requests * gain * (1 - 1e-9):
                    heapq.heappush(found, (-requests, next(number), path + child.edge, child))

    def _gain(self) -> float:
        """What a request weighs now."""
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
        # A prefix is never taken for more frequent than its beginning.
        weight = min(self._floor + gain, parent.weight)
        node = _Node(edge, parent, weight, weight - gain)
        parent.children[edge[:KEY_BYTES]] = node
        self._take_source(parent)
        self.bytes += NODE_BYTES + len(edge)
        self._queue(node)
        return node

    def _split(self, node: _Node, at: int) -> _Node:
        """Puts a node into the middle of an edge. Whatever came through its end came through it."""
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
        """Drops the lightest leaves until what is left fits."""
        while self.bytes > self._limit:
            weight, _, node = heapq.heappop(self._leaves)
            node.queued = False
            if node.children:
                continue  # it is queued again when it is a leaf again
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
            self._give(parent, source)  # its prompt begins with what the parent stands for
            self._queue(parent)


def _common(edge: bytes, keys: bytes, depth: int) -> int:
    """Bytes, in whole keys, that `edge` has in common with `keys` from `depth` on."""
    if keys.startswith(edge, depth):
        return len(edge)
    held, missing = 0, len(edge) // KEY_BYTES
    while missing - held > 1:  # the first key is common, or the edge would not have been found
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
