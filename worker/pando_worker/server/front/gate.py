"""Limits how many requests are in flight, and admits none while the worker drains."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pando_worker.server.errors import unavailable


class Gate:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.draining = False
        self.in_flight = 0
        self._left = asyncio.Event()

    def check(self) -> None:
        """Raises ApiError 503 if no request can be admitted now."""
        if self.draining:
            raise unavailable("this worker is shutting down", "draining")
        if self.in_flight >= self._limit:
            raise unavailable(
                f"{self.in_flight} requests are in flight already, try again later", "queue_full"
            )

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Counts a request while the block runs. Raises ApiError 503 if it cannot be admitted."""
        self.check()
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
            self._left.set()

    async def wait_empty(self) -> None:
        while self.in_flight:
            self._left.clear()
            await self._left.wait()
