"""`SchedulePolicy`: an entry of the registry; `Order`: what it makes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from sortedcontainers import SortedDict

Clock = Callable[[], float]
"""The scheduler's clock, seconds."""


class ReqView(Protocol):
    """What a policy sees of a waiting request (`scheduler/req.py`)."""

    @property
    def place(self) -> int:
        """Among equals: the lowest is in front, retracted requests before the others."""
        ...

    @property
    def priority(self) -> int: ...

    @property
    def num_tokens(self) -> int: ...

    @property
    def queued_at(self) -> float:
        """By the scheduler's clock."""
        ...

    def __hash__(self) -> int: ...


ReqT = TypeVar("ReqT", bound=ReqView)


class MatchesView(Protocol[ReqT]):
    """What a policy sees of the radix cache (`scheduler/planning/matches.py`)."""

    def hit(self, req: ReqT) -> int:
        """Leading tokens of a waiting request that are cached."""
        ...

    def by_branch(self) -> Iterator[ReqT]:
        """Depth first through the prefix tree, the branch with the most waiting requests first."""
        ...


class Order(Protocol[ReqT]):
    """The waiting requests in a policy's order. None of them changes while it is iterated."""

    def add(self, req: ReqT) -> None: ...

    def discard(self, req: ReqT) -> None: ...

    def changed(self, req: ReqT) -> None:
        """More or less of a request's prompt is cached now."""
        ...

    def __iter__(self) -> Iterator[ReqT]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePolicy:
    name: str
    help: str  # completes "the first to run is"
    make: Callable[[MatchesView[Any], Clock], Order[Any]]  # both of the same requests
    # A request's `priority` counts. Other policies refuse it, and their retractions ignore it.
    by_priority: bool = False


class SortedOrder(Generic[ReqT]):
    """By a key that only a change of what is cached can change; among equals, retracted requests
    first and then by arrival."""

    def __init__(self, key: Callable[[ReqT], float] = lambda req: 0) -> None:
        """
        Args:
            key: the lowest goes first.
        """
        self._key = key
        self._sorted: SortedDict[tuple[float, int], ReqT] = SortedDict()
        self._keys: dict[ReqT, tuple[float, int]] = {}

    def add(self, req: ReqT) -> None:
        key = self._key(req), req.place
        self._keys[req] = key
        self._sorted[key] = req

    def discard(self, req: ReqT) -> None:
        del self._sorted[self._keys.pop(req)]

    def changed(self, req: ReqT) -> None:
        self.discard(req)
        self.add(req)

    def __iter__(self) -> Iterator[ReqT]:
        return iter(self._sorted.values())
