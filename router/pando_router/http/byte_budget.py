"""A memory budget shared by many owners: take bytes before holding them, then give them back."""

from pando_router.current import Current


class ByteBudget:
    def __init__(self, limit: Current[int]) -> None:
        """If `limit` shrinks, held bytes remain held."""
        self._limit = limit
        self.held = 0

    @property
    def room(self) -> int:
        """Bytes that may still be taken."""
        return max(0, self._limit.now - self.held)

    def take(self, size: int) -> bool:
        """Takes `size` bytes. Returns False, and takes none, if there is no room."""
        if size > self._limit.now - self.held:
            return False
        self.held += size
        return True

    def give_back(self, size: int) -> None:
        self.held -= size
