"""Delays after failures in a row: exponential, with jitter."""

import random
from collections.abc import Callable


class Backoff:
    """Seconds before the next try: half to all of `first_s`, twice that, … `most_s`.

    The jitter keeps the watches of one operator, and several operators, from returning to an API
    server at the same moment.
    """

    def __init__(
        self,
        first_s: float = 0.5,
        most_s: float = 30.0,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._first_s, self._most_s, self._uniform = first_s, most_s, uniform
        self.failures = 0  # in a row

    def reset(self) -> None:
        self.failures = 0

    def next(self) -> float:
        longest = min(self._most_s, self._first_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return self._uniform(longest / 2, longest)
