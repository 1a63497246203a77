"""`Timeline`: everything that will happen, in the order of virtual time."""

import heapq
import math
from collections.abc import Awaitable, Callable

Act = Callable[[], Awaitable[None] | None]

EPOCH_MS = 1_000_000_000
"""Redis's clock at the trace's start."""


class Timeline:
    """What is due at one moment happens in the order in which it was asked for, but first what only
    looks at the fleet."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, bool, int, Act]] = []
        self._looks: list[float] = []
        self.looks_any_time = False  # somebody does so when it needs to know
        self._last_look_s = -math.inf
        self._number = 0

    def looks_within(self, after_s: float, before_s: float) -> bool:
        """Whether somebody may look, or has looked, behind one moment and before another; now is
        not before the first."""
        if self.looks_any_time or self._last_look_s > after_s:
            return True
        return bool(self._looks and self._looks[0] < before_s)

    @property
    def pending(self) -> int:
        """Events that are still to come."""
        return len(self._events)

    def redis_ms(self) -> int:
        """Redis's clock, which is the one of all scripts."""
        return EPOCH_MS + int(1000 * self.now_s)

    def at(self, when_s: float, act: Act, *, looks: bool = False) -> None:
        """`act` happens at `when_s`, or now where that has passed."""
        self._number += 1
        when_s = max(when_s, self.now_s)
        heapq.heappush(self._events, (when_s, not looks, self._number, act))
        if looks:
            heapq.heappush(self._looks, when_s)

    def after(self, delay_s: float, act: Act) -> None:
        self.at(self.now_s + delay_s, act)

    async def step(self) -> None:
        """The next event; there is one."""
        self.now_s, acts, _, act = heapq.heappop(self._events)
        if not acts:
            self._last_look_s = heapq.heappop(self._looks)
        waits = act()
        if waits is not None:
            await waits
