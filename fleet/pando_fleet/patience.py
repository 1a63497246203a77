"""Waits with a time limit that share one timer.

`asyncio.timeout` creates, moves and cancels a timer for each wait, which would cost more than
everything else in a call to Redis.
"""

import asyncio
from collections import deque
from typing import Any


class Patience:
    """Futures that have `limit_s` seconds each, from `bound` on; late ones get a TimeoutError.
    Futures that are done are forgotten at the next look."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._waits: deque[tuple[float, asyncio.Future[Any]]] = deque()  # the oldest first
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Waits that are not forgotten yet."""
        return len(self._waits)

    def bound(self, future: asyncio.Future[Any]) -> None:
        waits, loop = self._waits, future.get_loop()
        while waits and waits[0][1].done():
            waits.popleft()
        due = loop.time() + self.limit_s
        waits.append((due, future))
        if self._timer is None:
            self._timer = loop.call_at(due, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        waits, now = self._waits, loop.time()
        while waits:
            due, future = waits[0]
            if not future.done():
                if due > now:
                    self._timer = loop.call_at(due, self._look, loop)
                    return
                future.set_exception(TimeoutError())
            waits.popleft()
