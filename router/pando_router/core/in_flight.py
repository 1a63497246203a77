"""Counts this router's own requests in flight by replica: the load that it knows without Redis."""

from collections import Counter


class InFlight:
    """Counts by incarnation; a restarted replica starts at zero."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __getitem__(self, incarnation: str) -> int:
        return self._counts[incarnation]

    def total(self) -> int:
        return self._counts.total()

    def started(self, incarnation: str) -> None:
        self._counts[incarnation] += 1

    def ended(self, incarnation: str) -> None:
        self._counts[incarnation] -= 1
        if not self._counts[incarnation]:
            del self._counts[incarnation]
