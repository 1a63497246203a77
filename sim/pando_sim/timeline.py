"""`Timeline`: all future events, in the order of virtual time."""

import heapq
import math
from collections.abc import Awaitable, Callable

Act = Callable[[], Awaitable[None] | None]

EPOCH_MS = 1_000_000_000
"""Redis's clock at the trace's start."""


def redis_ms(at_s: float) -> int:
    """Redis's clock, which all scripts use, at a moment of the trace."""
    return EPOCH_MS + int(1000 * at_s)


class Timeline:
    """Events of one moment happen in the order in which they were scheduled, but those that only
    look at the fleet come first."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, bool, int, Act]] = []
        self._looks: list[float] = []
        self.looks_any_time = False  # whether someone may look whenever needed
        self._last_look_s = -math.inf
        self._number = 0

    def looks_within(self, after_s: float, before_s: float) -> bool:
        """Whether someone may look, or has looked, after one moment and before another; now is not
        before the first."""
        if self.looks_any_time or self._last_look_s > after_s:
            return True
        return bool(self._looks and self._looks[0] < before_s)

    @property
    def pending(self) -> int:
        """Events that have not happened yet."""
        return len(self._events)

    def redis_ms(self) -> int:
        return redis_ms(self.now_s)

    def at(self, when_s: float, act: Act, *, looks: bool = False) -> None:
        """Schedules `act` at `when_s`, or now if that has passed."""
        self._number += 1
        when_s = max(when_s, self.now_s)
        heapq.heappush(self._events, (when_s, not looks, self._number, act))
        if looks:
            heapq.heappush(self._looks, when_s)

    def after(self, delay_s: float, act: Act) -> None:
        self.at(self.now_s + delay_s, act)

    async def step(self) -> None:
        """Runs the next event; there must be one."""
        self.now_s, acts, _, act = heapq.heappop(self._events)
        if not acts:
            self._last_look_s = heapq.heappop(self._looks)
        waits = act()
        if waits is not None:
            await waits
