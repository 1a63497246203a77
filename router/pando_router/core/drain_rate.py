"""How fast places are given out, and from that when a client should try again."""

from collections.abc import Callable
from math import ceil, exp
from time import monotonic

WINDOW_S = 10.0  # time constant of the mean

UNMEASURED_S = 5
"""Retry-After where nothing was given out yet, as while a pool wakes."""

LONGEST_S = 60


class DrainRate:
    """Places a second, as an exponentially weighted mean over about WINDOW_S."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._started = self._at = clock()
        self._sum = 0.0  # of places, each weighted by exp(-age / WINDOW_S)

    def count(self) -> None:
        """A place was given out."""
        now = self._clock()
        self._sum = self._sum * exp((self._at - now) / WINDOW_S) + 1.0
        self._at = now

    @property
    def per_s(self) -> float:
        """0.0 where nothing was given out yet."""
        now = self._clock()
        # What of the window has been seen: without it the first seconds would look slow.
        seen_s = WINDOW_S * (1.0 - exp((self._started - now) / WINDOW_S))
        return self._sum * exp((self._at - now) / WINDOW_S) / seen_s if seen_s > 0 else 0.0

    def retry_after_s(self, waiting: int) -> int:
        """Whole seconds until `waiting` requests have their places, 1 to LONGEST_S."""
        rate = self.per_s
        if rate <= 0.0:
            return UNMEASURED_S
        return max(1, min(LONGEST_S, ceil(waiting / rate)))
