"""Breaker: a replica that fails repeatedly is left alone for a while, longer each time.

Keyed by incarnation, so a restarted worker starts with a clean slate. After the pause one request
is let through as a probe: its success closes the breaker, its failure doubles the pause.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic

FAILURES = 3  # in a row, until a replica is left alone
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"  # the pause is over, the next request decides


@dataclass(slots=True)
class _Record:
    failures: int = 0
    open_until: float = 0.0
    probing: bool = False

    @property
    def pause_s(self) -> float:
        return min(FIRST_PAUSE_S * 2.0 ** (self.failures - FAILURES), LONGEST_PAUSE_S)


class Breaker:
    """Failures in a row of every replica incarnation; replicas that never failed cost nothing."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._records: dict[str, _Record] = {}

    def __bool__(self) -> bool:
        """Whether any replica has failed lately."""
        return bool(self._records)

    def state(self, incarnation: str) -> BreakerState:
        record = self._records.get(incarnation)
        if record is None or record.failures < FAILURES:
            return BreakerState.CLOSED
        if self._clock() < record.open_until:
            return BreakerState.OPEN
        return BreakerState.PROBING

    def trying(self, incarnation: str) -> None:
        """A request goes there: while it is the probe, no other shall follow it."""
        if self._records and self.state(incarnation) is BreakerState.PROBING:
            record = self._records[incarnation]
            record.open_until = self._clock() + record.pause_s
            record.probing = True

    def succeeded(self, incarnation: str) -> None:
        self._records.pop(incarnation, None)

    def failed(self, incarnation: str) -> None:
        record = self._records.setdefault(incarnation, _Record())
        # Requests that were under way when the breaker opened say nothing new.
        if self.state(incarnation) is BreakerState.OPEN and not record.probing:
            return
        record.failures += 1
        record.probing = False
        if record.failures >= FAILURES:
            record.open_until = self._clock() + record.pause_s

    def keep_only(self, incarnations: set[str]) -> None:
        """Forgets replicas that are no longer known."""
        for gone in self._records.keys() - incarnations:
            del self._records[gone]
