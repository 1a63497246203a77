"""`Pace`: how long runs will still take, from what has been played of them."""

from dataclasses import dataclass, field

MEASURED_S = 10.0
"""Before that little is said by what was played: processes start, and caches are empty."""


@dataclass(slots=True)
class Pace:
    runs: int
    length_s: float  # of each, virtual
    begun_s: float  # by any clock, like the other times
    _played_s: dict[int, float] = field(default_factory=dict)  # virtual, by run

    def played(self, run: int, at_s: float) -> None:
        """Run number `run` has come so far; `at_s` is virtual."""
        self._played_s[run] = min(at_s, self.length_s)

    def left_s(self, now_s: float) -> float | None:
        """Until all runs have ended, if as much is played at a time as until now; None before
        that can be told."""
        took_s, played_s = now_s - self.begun_s, sum(self._played_s.values())
        if took_s < MEASURED_S or played_s <= 0:
            return None
        return took_s * (self.runs * self.length_s / played_s - 1)
