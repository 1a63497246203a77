"""`Current`: a value that a reload of the settings replaces. Its readers keep the holder."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Current(Generic[T]):
    """Read `now` at each use: a plain attribute, because every request reads several."""

    __slots__ = ("now",)

    def __init__(self, now: T) -> None:
        self.now = now
