"""`TreeNode`: an edge of the prefix tree with the node at its end.

It holds a run of whole pages of one prefix: their token ids, and the pages of their keys and values
on the device, on the host, or on both.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pando_worker.memory.page_allocator import Pages

Tokens = NDArray[np.int32]
Marks = NDArray[np.uint64]  # see ghost_list.py

_Array = TypeVar("_Array", Tokens, Marks)

MOST_AS_BYTES = 8192
"""Up to this many tokens are compared as bytes; for more, the copies cost what they save."""

NO_TOKENS: Tokens = np.empty(0, dtype=np.int32)
NO_PAGES: Pages = np.empty(0, dtype=np.int32)
NO_MARKS: Marks = np.empty(0, dtype=np.uint64)


class TreeNode:
    """Times are counts of operations on the tree."""

    __slots__ = (
        "children",
        "created",
        "device_children",
        "edge",
        "end",
        "hits",
        "host_pages",
        "is_forgotten",
        "key",
        "lock_ref",
        "marks",
        "pages",
        "parent",
        "used",
    )

    def __init__(self, parent: "TreeNode | None", key: Tokens, end: int, edge: bytes) -> None:
        self.parent = parent
        # Its key among the parent's children: the bytes of its first page; below the root, prefixed
        # by its namespace.
        self.edge = edge
        self.key = key  # [num_pages * page_size]
        self.end = end  # tokens from the root to the end of this node
        self.pages: Pages | None = None  # on the device
        self.host_pages: Pages | None = None
        self.marks: Marks = NO_MARKS
        self.children: dict[bytes, TreeNode] = {}  # by their edges
        self.device_children = 0  # children that are on the device
        self.lock_ref = 0  # locks on this node or below it
        self.hits = 0  # admitted requests that matched it
        self.used = 0  # when it was last matched, inserted or unlocked
        self.created = 0  # when it was stored on the device
        self.is_forgotten = False  # no longer in the tree, but still locked

    @property
    def start(self) -> int:
        return self.end - len(self.key)

    @property
    def num_pages(self) -> int:
        pages = self.host_pages if self.pages is None else self.pages
        assert pages is not None, "a node is on the device, on the host, or gone"
        return len(pages)

    def split(self, count: int, page_size: int, marks: int) -> "TreeNode":
        """Split the edge after `count` pages and `marks` marks; returns the new node, the upper
        part, whose child this node becomes."""
        assert self.parent is not None
        at = count * page_size
        upper = TreeNode(self.parent, NO_TOKENS, self.start + at, self.edge)
        self.parent.children[self.edge] = upper
        self.edge = edge(self.key, at, page_size)
        upper.children[self.edge] = self
        self.parent = upper
        upper.key, self.key = cut(self.key, at)
        upper.marks, self.marks = cut(self.marks, marks)
        upper.lock_ref, upper.hits = self.lock_ref, self.hits
        upper.used, upper.created = self.used, self.created
        upper.is_forgotten = self.is_forgotten
        if self.pages is not None:
            upper.pages, self.pages = cut(self.pages, count)
            upper.device_children = 1
        if self.host_pages is not None:
            upper.host_pages, self.host_pages = cut(self.host_pages, count)
        return upper

    def cut_off(self, count: int, page_size: int, marks: int) -> tuple[Pages, Marks]:
        """Truncate a leaf that is only on the device to `count` pages and `marks` marks; returns
        views of the removed ones."""
        assert self.pages is not None
        at = count * page_size
        rest = self.pages[count:], self.marks[marks:]
        self.end -= len(self.key) - at
        self.key = _own(self.key[:at])
        self.pages = _own(self.pages[:count])
        self.marks = _own(self.marks[:marks])
        return rest

    def marks_before(self) -> Marks:
        """Marks that end with that of the last block that ends in this node or above."""
        return next((each.marks for each in self.path_up() if len(each.marks)), NO_MARKS)

    def path_up(self) -> Iterator["TreeNode"]:
        """The nodes from this one to the root, the root excluded."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent

    def subtree(self) -> Iterator["TreeNode"]:
        """This node and its descendants, parents before children."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())


class TreeWatcher(Protocol):
    """What follows the changes of the tree, but not where its nodes' pages are."""

    def added(self, node: TreeNode) -> None:
        """`node` is a new leaf."""
        ...

    def split(self, upper: TreeNode, lower: TreeNode) -> None:
        """A node was split: `lower`, which stays, below the new `upper`."""
        ...

    def removed(self, node: TreeNode) -> None:
        """`node` leaves the tree; its descendants have left. It still names its parent."""
        ...

    def shortened(self, node: TreeNode) -> None:
        """A leaf lost its last pages."""
        ...


@dataclass(frozen=True, slots=True)
class Match:
    """The longest cached prefix of a key."""

    pages: Pages  # of its part on the device, in order
    node: TreeNode  # where that part ends; lock this one
    host_pages: int  # how many more pages are only on the host
    end: TreeNode  # where these end; `node` if there are none


class Insertion(NamedTuple):
    """What became of a key, with all its pages on the device."""

    known: int  # how many of its leading pages the tree already had there
    node: TreeNode  # where it ends


def path_down(above: TreeNode, end: TreeNode) -> list[TreeNode]:
    """The nodes below `above` down to `end`."""
    path: list[TreeNode] = []
    while end is not above:
        path.append(end)
        assert end.parent is not None
        end = end.parent
    return path[::-1]


def edge(key: Tokens, start: int, page_size: int) -> bytes:
    """The key of a node among the children of its parent, which ends at token `start`."""
    return key[start : start + page_size].tobytes()


def walk(
    above: TreeNode, key: Tokens, page_size: int, namespace: bytes = b""
) -> list[tuple[TreeNode, int]]:
    """The nodes along `key` below `above` (the root, or a node up to which `key` is known to
    match), each with the number of its pages that match. Only the last may match in part.

    A namespace (`namespace.py`) prefixes the edges that leave the root.
    """
    node, start = above, above.end
    if above.parent is not None:
        namespace = b""
    path: list[tuple[TreeNode, int]] = []
    while child := node.children.get(namespace + edge(key, start, page_size)):
        namespace = b""
        matched = common_prefix(child.key, key[start:]) // page_size
        path.append((child, matched))
        if matched * page_size < len(child.key):
            break
        node, start = child, child.end
    return path


def outline(root: TreeNode) -> list[str]:
    """A line for each node below `root`, indented: its tokens, pages and locks."""
    lines: list[str] = []
    stack = [(child, 1) for child in root.children.values()]
    while stack:
        node, depth = stack.pop()
        head = " ".join(map(str, node.key[:8])) + (" …" if len(node.key) > 8 else "")
        host = "" if node.host_pages is None else f", {len(node.host_pages)} of the host"
        lines.append(
            f"{'  ' * depth}{len(node.key)} tokens [{head}] in"
            f" {0 if node.pages is None else len(node.pages)} pages{host},"
            f" lock_ref {node.lock_ref}"
        )
        stack.extend((child, depth + 1) for child in node.children.values())
    return lines


def common_prefix(a: Tokens, b: Tokens) -> int:
    """How many leading tokens are equal.

    Mostly a whole node matches, and comparing bytes finds that a few times faster. Otherwise
    compares ever longer blocks, so that a difference near the start is found early.
    """
    length, start, width = min(len(a), len(b)), 0, 1024
    if length <= MOST_AS_BYTES and a[:length].tobytes() == b[:length].tobytes():
        return length
    while start < length:
        end = min(start + width, length)
        differs = a[start:end] != b[start:end]
        first = int(differs.argmax())
        if differs[first]:
            return start + first
        start, width = end, min(4 * width, 65_536)
    return length


def cut(array: _Array, at: int) -> tuple[_Array, _Array]:
    """`array` before and from `at`. A part is copied if it is the smaller half of its memory: then
    cutting page after page off a long edge costs only the cut pages, and wastes at most half."""
    return _own(array[:at]), _own(array[at:])


def _own(view: _Array) -> _Array:
    base = view.base
    return view.copy() if isinstance(base, np.ndarray) and 2 * view.size < base.size else view
