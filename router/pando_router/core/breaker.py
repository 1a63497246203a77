"""Breaker: a replica that fails is left alone for a while, longer each time.

It opens after FAILURES in a row, or where of at least LEAST requests within WINDOW_S a share of
SHARE failed: a replica that answers every other request is as bad as a dead one. Both follow
Envoy's outlier detection (`consecutive_gateway_failure`, `failure_percentage_threshold`). After the
pause it is half open: one request at a time is let through as a probe, whose success closes the
breaker and whose failure doubles the pause. Keyed by incarnation, so a restarted worker starts with
a clean slate. A replica that has not failed lately has no record and costs nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic

FAILURES = 3  # in a row
SHARE = 0.5
LEAST = 20
WINDOW_S = 10
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    PROBING = "probing"  # the pause is over, the next request decides


@dataclass(slots=True)
class _Second:
    number: int
    requests: int = 0
    failures: int = 0


@dataclass(slots=True)
class _Record:
    """Of one incarnation, from its first failure on until a window passes without one."""

    in_a_row: int = 0
    seconds: list[_Second] = field(default_factory=list)  # at most WINDOW_S, oldest first
    opened: int = 0  # times in a row; 0 is closed
    open_until: float = 0.0
    probing: bool = False

    @property
    def pause_s(self) -> float:
        return min(FIRST_PAUSE_S * 2.0 ** (self.opened - 1), LONGEST_PAUSE_S)

    def count(self, now: float, failures: int) -> None:
        second = int(now)
        if not self.seconds or self.seconds[-1].number != second:
            self.seconds = [s for s in self.seconds if s.number > second - WINDOW_S]
            self.seconds.append(_Second(second))
        self.seconds[-1].requests += 1
        self.seconds[-1].failures += failures

    @property
    def failed_lately(self) -> bool:
        return any(second.failures for second in self.seconds)

    @property
    def tripped(self) -> bool:
        requests = sum(second.requests for second in self.seconds)
        failures = sum(second.failures for second in self.seconds)
        return self.in_a_row >= FAILURES or (requests >= LEAST and failures >= SHARE * requests)


class Breaker:
    """What became of the requests to every replica incarnation that failed lately."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self.records: dict[str, _Record] = {}  # of those that have failed lately

    def state(self, incarnation: str) -> BreakerState:
        record = self.records.get(incarnation)
        if record is None or not record.opened:
            return BreakerState.CLOSED
        if self._clock() < record.open_until:
            return BreakerState.OPEN
        return BreakerState.PROBING

    def trying(self, incarnation: str) -> None:
        """A request goes there: while it is the probe, no other shall follow it."""
        if self.records and self.state(incarnation) is BreakerState.PROBING:
            record = self.records[incarnation]
            record.open_until = self._clock() + record.pause_s
            record.probing = True

    def succeeded(self, incarnation: str) -> None:
        if not self.records or (record := self.records.get(incarnation)) is None:
            return
        if record.opened:
            if record.probing:
                del self.records[incarnation]
            return  # else it was under way when the breaker opened, and says nothing new
        record.in_a_row = 0
        record.count(self._clock(), failures=0)
        if not record.failed_lately:
            del self.records[incarnation]

    def failed(self, incarnation: str) -> None:
        record = self.records.setdefault(incarnation, _Record())
        if record.opened and not record.probing:
            return  # as above
        now = self._clock()
        record.in_a_row += 1
        record.count(now, failures=1)
        if record.opened or record.tripped:
            record.opened += 1
            record.probing = False
            record.open_until = now + record.pause_s

    def keep_only(self, incarnations: set[str]) -> None:
        """Forgets replicas that are no longer known."""
        for gone in self.records.keys() - incarnations:
            del self.records[gone]
