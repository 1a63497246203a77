"""Measures how fast waiting requests get places, to compute Retry-After."""

from collections.abc import Callable
from math import ceil, exp
from time import monotonic

WINDOW_S = 10.0  # time constant of the mean

UNMEASURED_S = 5
"""Retry-After in seconds before the first place was given out, as while a pool wakes."""

LONGEST_S = 60


class DrainRate:
    """Places per second, as an exponentially weighted mean over about WINDOW_S."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._started = self._at = clock()
        self._sum = 0.0  # of places, each weighted by exp(-age / WINDOW_S)

    def count(self) -> None:
        """Counts one place."""
        now = self._clock()
        self._sum = self._sum * exp((self._at - now) / WINDOW_S) + 1.0
        self._at = now

    @property
    def per_s(self) -> float:
        """0.0 before the first place."""
        now = self._clock()
        # The observed part of the window: dividing by all of it underestimates the first seconds.
        seen_s = WINDOW_S * (1.0 - exp((self._started - now) / WINDOW_S))
        return self._sum * exp((self._at - now) / WINDOW_S) / seen_s if seen_s > 0 else 0.0

    def retry_after_s(self, waiting: int) -> int:
        """Whole seconds until `waiting` requests have got a place, from 1 to LONGEST_S."""
        rate = self.per_s
        if rate <= 0.0:
            return UNMEASURED_S
        return max(1, min(LONGEST_S, ceil(waiting / rate)))
