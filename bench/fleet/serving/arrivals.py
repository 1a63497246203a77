"""When requests are sent in an open loop: seconds since the start, as infinite or finite streams.

Pure functions of rate and seed. A closed loop has no arrivals: each user sends the next request
when the previous one has ended.
"""

import itertools
import random
from collections.abc import Iterator, Sequence


def poisson(rate: float, seed: int) -> Iterator[float]:
    """Independent arrivals, `rate` a second on average; the first one is at 0."""
    gaps = random.Random(f"poisson {seed}")
    now = 0.0
    while True:
        yield now
        now += gaps.expovariate(rate)


def constant(rate: float) -> Iterator[float]:
    """One arrival every 1 / rate seconds."""
    return (index / rate for index in itertools.count())


def recorded(timestamps_ms: Sequence[float], speed: float) -> Iterator[float]:
    """A trace's own arrivals, `speed` times as fast; the first one is at 0."""
    first = timestamps_ms[0] if timestamps_ms else 0.0
    return ((at - first) / 1000 / speed for at in timestamps_ms)
