"""A memory budget shared by many owners: take bytes before holding them, then give them back."""

from asyncio import Lock, sleep

from pando_fleet.current import Current


class ByteBudget:
    def __init__(self, limit: Current[int]) -> None:
        """If `limit` shrinks, held bytes remain held."""
        self._limit = limit
        self.held = 0
        self._turns = Lock()

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

    async def turn(self) -> None:
        """Waits until it is this owner's turn to work on many bytes. Owners have different turns of
        the event loop, so that many at once do not keep streams and Redis's answers waiting."""
        async with self._turns:
            await sleep(0)

    def give_back(self, size: int) -> None:
        self.held -= size
