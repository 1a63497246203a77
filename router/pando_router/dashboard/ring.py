"""A bounded list whose items are numbered, so that a reader can ask for what is new."""

from collections import deque
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class Ring(Generic[T]):
    """Items are numbered from 1; the last `limit` are kept."""

    def __init__(self, limit: int) -> None:
        self._items: deque[T] = deque(maxlen=limit)
        self.last = 0  # the newest item's number

    def add(self, item: T) -> None:
        self._items.append(item)
        self.last += 1

    def after(self, number: int) -> list[T]:
        """The items with higher numbers; all if `number` does not exist yet: it is another
        router's, or from before a restart."""
        first = self.last - len(self._items)  # the number before the oldest one
        skipped = max(0, number - first) if number <= self.last else 0
        return list(islice(self._items, skipped, None))
