"""`EvictionPolicy`: an entry of the registry; `EvictionOrder`: what it makes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar


class NodeView(Protocol):
    """What a policy sees of a node of the prefix tree (`memory/tree_node.py`)."""

    @property
    def hits(self) -> int:
        """Admitted requests that matched it."""
        ...

    @property
    def created(self) -> int:
        """When it was stored on the device, in operations on the tree."""
        ...

    @property
    def device_children(self) -> int:
        """Its children that are on the device."""
        ...

    def __hash__(self) -> int: ...


NodeT = TypeVar("NodeT", bound=NodeView)


class EvictionOrder(Protocol[NodeT]):
    """The unlocked nodes on the device. Only a leaf can be evicted: one without children there."""

    def add(self, node: NodeT) -> None:
        """A node was stored, or unlocked. Children are added before their parents."""
        ...

    def add_upper(self, node: NodeT) -> None:
        """A node was split: `node` is the new upper part of one that is in the order and is now its
        child, or of one that was just popped."""
        ...

    def touch(self, node: NodeT) -> None:
        """A node was used. Children are touched before their parents."""
        ...

    def discard(self, node: NodeT) -> None:
        """A node was locked."""
        ...

    def expose(self, node: NodeT) -> None:
        """A node lost its last child on the device, so it may be a leaf now."""
        ...

    def pop(self) -> NodeT:
        """Remove and return the leaf to evict; the order must not be empty."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionPolicy:
    name: str
    help: str  # completes "the first to go is"
    make: Callable[[], EvictionOrder[Any]]
