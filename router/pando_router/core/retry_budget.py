"""Retry budget: limits retries to a share of the requests.

A limit per request alone lets an overloaded pool receive each request two or three times, which
keeps it overloaded. So the retries of the last WINDOW_S seconds may be at most a share of the
requests of that time, plus MIN_PER_S for routers with little traffic. This is Finagle's RetryBudget
(default 20 % and 10 per second over 10 seconds), which Envoy has as `retry_budget`.
"""

from collections.abc import Callable
from time import monotonic

from pando_fleet.current import Current

WINDOW_S = 10
MIN_PER_S = 10


class RetryBudget:
    """Counts requests and retries by second; `share` is the setting."""

    def __init__(self, share: Current[float], clock: Callable[[], float] = monotonic) -> None:
        self._share = share
        self._clock = clock
        self._second = int(clock())
        self._requests = [0] * WINDOW_S
        self._retries = [0] * WINDOW_S

    def request(self) -> None:
        """Counts a new request."""
        self._requests[self._slot()] += 1

    def allows(self) -> bool:
        """Whether one more retry is within the budget."""
        self._slot()
        allowed = self._share.now * sum(self._requests) + MIN_PER_S * WINDOW_S
        return sum(self._retries) + 1 <= allowed

    def retry(self) -> None:
        """Counts a retry."""
        self._retries[self._slot()] += 1

    def _slot(self) -> int:
        second = int(self._clock())
        if second != self._second:
            for passed in range(self._second + 1, min(second, self._second + WINDOW_S) + 1):
                self._requests[passed % WINDOW_S] = self._retries[passed % WINDOW_S] = 0
            self._second = second
        return second % WINDOW_S
