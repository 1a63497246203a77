"""`Current`: holds a value that a reload of the settings replaces."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Current(Generic[T]):
    """Readers keep the holder and read `now` at each use, a plain attribute for speed."""

    __slots__ = ("now",)

    def __init__(self, now: T) -> None:
        self.now = now
