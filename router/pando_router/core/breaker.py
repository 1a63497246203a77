"""Circuit breaker: a failing replica gets no requests for a while, longer each time.

The breaker opens after FAILURES in a row, or when a share of SHARE of at least LEAST requests
within WINDOW_S failed: a replica that fails every other request is as bad as a dead one. Both rules
follow Envoy's outlier detection (`consecutive_gateway_failure`, `failure_percentage_threshold`).
After the pause the breaker is half open: it lets one request at a time through as a probe. A
successful probe closes the breaker; a failed one doubles the pause. Records are keyed by
incarnation, so a restarted replica starts with a clean slate. A replica that has not failed lately
has no record and costs nothing.
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
    """One incarnation's results, from its first failure until a window without failures."""

    in_a_row: int = 0
    seconds: list[_Second] = field(default_factory=list)  # at most WINDOW_S, oldest first
    opened: int = 0  # how many times in a row; 0 means closed
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
    """Records the results of requests to each replica incarnation that failed lately."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self.records: dict[str, _Record] = {}  # by incarnation

    def state(self, incarnation: str) -> BreakerState:
        record = self.records.get(incarnation)
        if record is None or not record.opened:
            return BreakerState.CLOSED
        if self._clock() < record.open_until:
            return BreakerState.OPEN
        return BreakerState.PROBING

    def trying(self, incarnation: str) -> None:
        """Notes that a request is sent there; while it is the probe, no other may follow."""
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
            return  # else the request began before the breaker opened and proves nothing
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
        """Drops the records of all other incarnations."""
        for gone in self.records.keys() - incarnations:
            del self.records[gone]
