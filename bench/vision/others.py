"""How much of the cores other programs take during a measurement, by Linux's counters."""

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

_TICKS = os.sysconf("SC_CLK_TCK")
_BUSY = (0, 1, 2, 5, 6)  # user, nice, system and interrupts, in the first row of /proc/stat


@dataclass(frozen=True, slots=True)
class Cores:
    """CPU seconds since the machine started."""

    all_s: float  # that there were, used or not
    others_s: float  # of programs other than this one and its children

    @staticmethod
    def now() -> "Cores":
        row = Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[1:]
        ticks = [int(one) for one in row[:8]]  # those of guests are among these
        family = [psutil.Process(), *psutil.Process().children(recursive=True)]
        times = [one.cpu_times() for one in family]
        own = sum(one.user + one.system for one in times)
        busy = sum(ticks[at] for at in _BUSY) / _TICKS
        return Cores(sum(ticks) / _TICKS, busy - own)

    def others_until(self, later: "Cores") -> float:
        """The part of all cores that other programs took in between."""
        return (later.others_s - self.others_s) / (later.all_s - self.all_s)
