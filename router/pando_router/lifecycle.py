"""A router's life: the requests it serves, and its end, when nothing new is taken."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Lifecycle:
    """Counts the requests being served, and knows whether the router is on its way out."""

    def __init__(self) -> None:
        self.requests = 0
        self.leaving = False  # not ready any more; what still comes is taken
        self.draining = False  # nothing new is taken
        self._idle = asyncio.Event()
        self._idle.set()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Around each request."""
        self.requests += 1
        self._idle.clear()
        try:
            yield
        finally:
            self.requests -= 1
            if not self.requests:
                self._idle.set()

    async def drain(self, timeout_s: float) -> None:
        """Takes nothing new and waits until nothing runs; TimeoutError where that takes longer."""
        self.leaving = self.draining = True
        async with asyncio.timeout(timeout_s):
            await self._idle.wait()
