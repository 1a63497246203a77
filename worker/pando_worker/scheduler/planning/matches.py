"""`Matches`: how much of each waiting request's prompt is cached, kept up while the tree changes.

A match is looked up once, when its request joins the queue. From then on the radix cache reports
its own changes, and only the requests at the place of a change are looked at again:

    a node is added    the requests whose match ended there and go on with its first page
    one is split       those whose match ends within it
    one is removed     those whose match ended in it: it ends at the parent now
    one is shortened   likewise

So a step costs what has changed, however many requests wait and however long their prefixes are.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from pando_worker.memory.radix_cache import RadixCache, TreeNode
from pando_worker.memory.tree_node import edge, walk
from pando_worker.scheduler.req import Req

_Group = dict[Req, None]  # a set that keeps its order
_NO_PAGE = b""  # where the whole prompt matches: no node begins with it


@dataclass(frozen=True, slots=True)
class _Place:
    node: TreeNode  # the last one that matches at least in part
    hit: int  # tokens
    # The page of its prompt that follows the node's; None if the match ends within the node.
    next_page: bytes | None


class Matches:
    """The radix cache's `watcher`."""

    def __init__(self, cache: RadixCache, on_change: Callable[[Req], None]) -> None:
        """
        Args:
            on_change: called with a request whose match has become longer or shorter.
        """
        self._cache = cache
        self._page_size = cache.page_size
        self._on_change = on_change
        self._places: dict[Req, _Place] = {}
        self._usable: dict[Req, int] = {}  # of those that were found to continue from less
        # The requests whose match ends with a node, by their next page; and those within a node.
        self._at_end: dict[TreeNode, dict[bytes, _Group]] = {}
        self._within: dict[TreeNode, _Group] = {}
        # How many requests match each node but the root, and the children of each that have any.
        self._weight: dict[TreeNode, int] = {}
        self._heavy: dict[TreeNode, dict[TreeNode, None]] = {}
        cache.watcher = self

    def add(self, req: Req) -> None:
        self._find(req, self._cache.root)

    def discard(self, req: Req) -> None:
        place = self._leave(req)
        self._unweigh(place.node, self._cache.root)
        del self._places[req]
        self._usable.pop(req, None)

    def hit(self, req: Req) -> int:
        """Leading tokens of a waiting request that are cached, on the device or on the host; fewer
        if it was found to continue from fewer (`correct`)."""
        usable = self._usable.get(req)
        return self._places[req].hit if usable is None else usable

    def correct(self, req: Req, usable: int) -> bool:
        """Note from how many of its cached tokens a request can continue, until more or less is
        cached. Returns whether that changes its hit."""
        before = self.hit(req)
        self._usable[req] = usable
        return usable != before

    def node_at(self, req: Req, hit: int) -> TreeNode:
        """The node that holds the last one of a waiting request's first `hit` tokens, which are
        cached; the root for 0."""
        node = self._places[req].node
        while node.parent is not None and node.start >= hit:
            node = node.parent
        return node

    def has_next(self, node: TreeNode, page: bytes) -> bool:
        """Whether a waiting request's match ends with `node` and would go on with that page."""
        return page in self._at_end.get(node, {})

    def by_branch(self) -> Iterator[Req]:
        """Depth first through the tree, the branch with the most waiting requests first."""
        stack = [self._cache.root]
        while stack:
            node = stack.pop()
            yield from sorted(self._ending_in(node), key=lambda req: req.place)
            stack += sorted(self._heavy.get(node, ()), key=self._weight.__getitem__)

    # What the radix cache reports

    def added(self, node: TreeNode) -> None:
        assert node.parent is not None
        for req in list(self._at_end.get(node.parent, {}).get(node.edge, ())):
            self._leave(req)
            self._find(req, node.parent)
            self._on_change(req)

    def split(self, upper: TreeNode, lower: TreeNode) -> None:
        if not (weight := self._weight.get(lower)):
            return
        within = self._within.get(lower, ())
        moved = [req for req in within if self._places[req].hit <= upper.end]
        for req in moved:
            place = self._leave(req)
            self._join(req, upper, place.hit)
        assert upper.parent is not None
        _remove(self._heavy, upper.parent, lower)
        del self._weight[lower]
        self._set_weight(upper, weight)
        self._set_weight(lower, weight - len(moved))

    def removed(self, node: TreeNode) -> None:
        if node not in self._weight:
            return
        assert node.parent is not None
        for req in list(self._ending_in(node)):
            self._leave(req)
            self._unweigh(node, node.parent)
            self._join(req, node.parent, node.parent.end)
            self._on_change(req)

    def shortened(self, node: TreeNode) -> None:
        if node not in self._weight:
            return
        for req in list(self._ending_in(node)):
            if self._places[req].hit >= node.end:
                self._leave(req)
                self._join(req, node, node.end)
                self._on_change(req)

    # Helpers

    def _ending_in(self, node: TreeNode) -> Iterator[Req]:
        for group in self._at_end.get(node, {}).values():
            yield from group
        yield from self._within.get(node, ())

    def _find(self, req: Req, above: TreeNode) -> None:
        """Find where a request's match ends; it matches all tokens up to the end of `above`."""
        node, hit = above, above.end
        key = req.tokens(req.matchable)
        for node, matched in walk(above, key, self._page_size, req.namespace):
            hit += matched * self._page_size
            self._set_weight(node, self._weight.get(node, 0) + 1)
        self._join(req, node, hit)

    def _join(self, req: Req, node: TreeNode, hit: int) -> None:
        self._usable.pop(req, None)
        if hit < node.end:
            self._places[req] = _Place(node, hit, None)
            self._within.setdefault(node, {})[req] = None
        else:
            page = self._next_page(req, node)
            self._places[req] = _Place(node, hit, page)
            self._at_end.setdefault(node, {}).setdefault(page, {})[req] = None

    def _leave(self, req: Req) -> _Place:
        place = self._places[req]
        if place.next_page is None:
            _remove(self._within, place.node, req)
        else:
            groups = self._at_end[place.node]
            _remove(groups, place.next_page, req)
            if not groups:
                del self._at_end[place.node]
        return place

    def _next_page(self, req: Req, node: TreeNode) -> bytes:
        if node.end + self._page_size > req.matchable:
            return _NO_PAGE
        page = edge(req.ids, node.end, self._page_size)
        return req.namespace + page if node.parent is None else page

    def _unweigh(self, node: TreeNode, above: TreeNode) -> None:
        """Take a request off the weights of the nodes from `node` up to below `above`."""
        while node is not above:
            self._set_weight(node, self._weight[node] - 1)
            assert node.parent is not None
            node = node.parent

    def _set_weight(self, node: TreeNode, weight: int) -> None:
        assert node.parent is not None
        if weight:
            self._weight[node] = weight
            self._heavy.setdefault(node.parent, {})[node] = None
        elif self._weight.pop(node, 0):
            _remove(self._heavy, node.parent, node)


_Key = TypeVar("_Key")
_Item = TypeVar("_Item")


def _remove(groups: dict[_Key, dict[_Item, None]], key: _Key, item: _Item) -> None:
    """Remove an item of a group, and the group if it is empty then."""
    del groups[key][item]
    if not groups[key]:
        del groups[key]
