"""Counts the requests in progress, and drains the router at its end."""

import asyncio


class Lifecycle:
    """Counts requests in progress, each in a `with lifecycle:`, and knows whether the router is
    about to end."""

    def __init__(self) -> None:
        self.requests = 0
        self.leaving = False  # not ready any more, but still accepts requests
        self.draining = False  # accepts no new requests
        self._idle = asyncio.Event()

    def __enter__(self) -> None:
        self.requests += 1

    def __exit__(self, *_: object) -> None:
        self.requests -= 1
        if not self.requests:
            self._idle.set()

    async def drain(self, timeout_s: float) -> None:
        """Accepts no new requests and waits for those in progress; raises TimeoutError."""
        self.leaving = self.draining = True
        async with asyncio.timeout(timeout_s):
            while self.requests:
                self._idle.clear()
                await self._idle.wait()
