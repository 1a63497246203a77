"""Bytes that many may hold together: taken before they are held, given back at the end."""

from pando_router.current import Current


class ByteBudget:
    def __init__(self, limit: Current[int]) -> None:
        """Where `limit` shrinks, what is held stays held."""
        self._limit = limit
        self.held = 0

    @property
    def room(self) -> int:
        """Bytes that may still be taken."""
        return max(0, self._limit.now - self.held)

    def take(self, size: int) -> bool:
        """False where there is no room for so many, and nothing is taken."""
        if size > self._limit.now - self.held:
            return False
        self.held += size
        return True

    def give_back(self, size: int) -> None:
        self.held -= size
