"""`Order`: what a policy is."""

from collections.abc import Callable, Iterator
from typing import Protocol

from sortedcontainers import SortedDict

from pando_worker.scheduler.req import Req

Clock = Callable[[], float]
"""The scheduler's clock, seconds."""


class Order(Protocol):
    """The waiting requests in a policy's order. None of them changes while it is iterated."""

    def add(self, req: Req) -> None: ...

    def discard(self, req: Req) -> None: ...

    def changed(self, req: Req) -> None:
        """More or less of a request's prompt is cached now."""
        ...

    def __iter__(self) -> Iterator[Req]: ...


class SortedOrder:
    """By a key that only a change of what is cached can change; among equals, retracted requests
    first and then by arrival."""

    def __init__(self, key: Callable[[Req], float] = lambda req: 0) -> None:
        """
        Args:
            key: the lowest goes first.
        """
        self._key = key
        self._sorted: SortedDict[tuple[float, int], Req] = SortedDict()
        self._keys: dict[Req, tuple[float, int]] = {}

    def add(self, req: Req) -> None:
        key = self._key(req), req.place
        self._keys[req] = key
        self._sorted[key] = req

    def discard(self, req: Req) -> None:
        del self._sorted[self._keys.pop(req)]

    def changed(self, req: Req) -> None:
        self.discard(req)
        self.add(req)

    def __iter__(self) -> Iterator[Req]:
        return iter(self._sorted.values())
