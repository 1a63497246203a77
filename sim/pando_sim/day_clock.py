"""`DayClock`: which time of which day it is at a moment of a run. Only schedules ask for it."""

from bisect import bisect_right
from dataclasses import dataclass

MONDAY_S = 4 * 86_400.0
"""A Monday, 0:00 UTC, as Unix time."""


@dataclass(frozen=True, slots=True)
class DayClock:
    """Runs on from `unix_s[i]` at `from_s[i]`: where a run plays stretches of a trace, its clock
    jumps from one stretch to the next, so that each has its own hours."""

    from_s: tuple[float, ...] = (0.0,)  # of the run, the first is its start
    unix_s: tuple[float, ...] = (MONDAY_S,)
    speed: float = 1.0  # of arrivals: at double speed a day of the trace takes half a day

    def unix_at(self, now_s: float) -> float:
        """The Unix time at a moment of the run."""
        stretch = max(0, bisect_right(self.from_s, now_s) - 1)
        return self.unix_s[stretch] + (now_s - self.from_s[stretch]) * self.speed


SINCE_MONDAY = DayClock()
"""Of a trace without times of day."""
