"""Retry budget: how many of the requests may be tried a second time.

Bounded tries alone let every request of an overloaded pool come twice or thrice, which keeps it
overloaded. So retries of the last WINDOW_S seconds may be at most a share of that time's requests,
and MIN_PER_S on top, for routers with little traffic: Finagle's RetryBudget (20 % and 10 a second
over 10 seconds by default), also in Envoy as `retry_budget`.
"""

from collections.abc import Callable
from time import monotonic

from pando_router.current import Current

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
        """A request came."""
        self._requests[self._slot()] += 1

    def allows(self) -> bool:
        """Whether one more retry is within the budget."""
        self._slot()
        allowed = self._share.now * sum(self._requests) + MIN_PER_S * WINDOW_S
        return sum(self._retries) + 1 <= allowed

    def retry(self) -> None:
        """A request is tried again."""
        self._retries[self._slot()] += 1

    def _slot(self) -> int:
        second = int(self._clock())
        if second != self._second:
            for passed in range(self._second + 1, min(second, self._second + WINDOW_S) + 1):
                self._requests[passed % WINDOW_S] = self._retries[passed % WINDOW_S] = 0
            self._second = second
        return second % WINDOW_S
