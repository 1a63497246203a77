"""A day's rhythm: the load rises and falls once, with bursts at seeded moments.

Keeps the trace's order and sharing; stretches its time where the day is quiet.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pando_sim.request import Request

STEP_S = 1.0
"""The rate is constant within this interval."""


@dataclass(frozen=True, slots=True)
class Day:
    """The rate of arrivals, as a share of the trace's own: 1 at the peak, `trough` half a day
    later, a cosine between; times `burst_factor` in bursts."""

    hours: float = 24.0
    trough: float = 0.2
    peak: float = 0.6  # share of the day after which it is busiest
    bursts: int = 6
    burst_factor: float = 2.0
    burst_s: float = 300.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not 0 < self.trough <= 1:
            raise ValueError(f"trough is {self.trough:g}, but must be above 0 and at most 1")
        if self.hours <= 0 or self.burst_factor <= 0 or self.burst_s < 0 or self.bursts < 0:
            raise ValueError("hours and burst_factor must be above 0, bursts and burst_s not below")

    @property
    def seconds(self) -> float:
        return self.hours * 3600

    def burst_starts(self) -> tuple[float, ...]:
        """Seconds, in order."""
        draw = random.Random(f"bursts of day {self.seed}")
        return tuple(sorted(draw.uniform(0, self.seconds) for _ in range(self.bursts)))

    def rate(self, at_s: float, burst_starts: tuple[float, ...]) -> float:
        swing = (1 + math.cos(2 * math.pi * (at_s / self.seconds - self.peak))) / 2
        rate = self.trough + (1 - self.trough) * swing
        if any(start <= at_s < start + self.burst_s for start in burst_starts):
            rate *= self.burst_factor
        return rate


def through(day: Day, requests: Iterator[Request]) -> Iterator[Request]:
    """The requests at the day's rate, until the day is over or there are none left."""
    bursts = day.burst_starts()
    at_s = used_s = 0.0  # of the day, and of the trace
    rate = day.rate(at_s, bursts)
    for request in requests:
        while used_s + rate * STEP_S <= request.at_s:
            used_s += rate * STEP_S
            at_s += STEP_S
            if at_s >= day.seconds:
                return
            rate = day.rate(at_s, bursts)
        yield replace(request, at_s=at_s + (request.at_s - used_s) / rate)
