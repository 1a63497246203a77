"""`Rate`: the amount done per second of work, averaged over the last seconds of work."""

import math
from collections.abc import Sequence


class Rate:
    """Two sums that decay with the same half-life: the amount, and the time that it took.

    Steps are weighted by their duration, so many short ones do not outweigh a long one; idle time
    does not count.
    """

    def __init__(self, half_life_s: float = 10.0) -> None:
        self._decay = math.log(2) / half_life_s
        self._amount = 0.0
        self._seconds = 0.0

    def add(self, amount: float, seconds: float) -> None:
        keep = math.exp(-self._decay * seconds)
        self._amount = self._amount * keep + amount
        self._seconds = self._seconds * keep + seconds

    def shares_kept(self, seconds: Sequence[float]) -> list[float]:
        """The share of the sums that is left after each of these times."""
        decay, exp = -self._decay, math.exp
        return [exp(decay * each) for each in seconds]

    def add_each(self, amount: float, seconds: Sequence[float], kept: Sequence[float]) -> None:
        """Like `add`, once for each of the times; `kept` are their `shares_kept`."""
        total, time = self._amount, self._seconds
        for each, keep in zip(seconds, kept, strict=True):
            total = total * keep + amount
            time = time * keep + each
        self._amount, self._seconds = total, time

    @property
    def per_second(self) -> float:
        """0.0 until the first measurement."""
        return self._amount / self._seconds if self._seconds > 0 else 0.0
