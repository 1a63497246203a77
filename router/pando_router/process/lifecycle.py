"""A router's life: the requests it serves, and its end, when nothing new is taken."""

import asyncio


class Lifecycle:
    """Counts the requests being served, each `with lifecycle:`, and knows whether the router is on
    its way out."""

    def __init__(self) -> None:
        self.requests = 0
        self.leaving = False  # not ready any more; what still comes is taken
        self.draining = False  # nothing new is taken
        self._idle = asyncio.Event()

    def __enter__(self) -> None:
        self.requests += 1

    def __exit__(self, *_: object) -> None:
        self.requests -= 1
        if not self.requests:
            self._idle.set()

    async def drain(self, timeout_s: float) -> None:
        """Takes nothing new and waits until nothing runs; TimeoutError where that takes longer."""
        self.leaving = self.draining = True
        async with asyncio.timeout(timeout_s):
            while self.requests:
                self._idle.clear()
                await self._idle.wait()
