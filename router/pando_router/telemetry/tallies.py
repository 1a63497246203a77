"""Tallies: numbers of every request, counted in plain integers and exported on each scrape.

For each count prometheus_client takes a lock and makes several calls, and for a histogram it walks
over the bounds; a request's eight numbers would take longer than reading its body.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from prometheus_client import Counter, Histogram, Metric


class Tally(Protocol):
    def fold(self) -> None:
        """Adds the counts since the last call to Prometheus's metric."""


class Count:
    """A counter with one set of labels."""

    __slots__ = ("_counter", "_new")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._new = 0.0

    def inc(self, amount: float = 1.0) -> None:
        self._new += amount

    def fold(self) -> None:
        new, self._new = self._new, 0.0
        self._counter.inc(new)


class Spread:
    """A histogram with one set of labels."""

    __slots__ = ("_bounds", "_histogram", "_new", "_sum")

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._bounds = histogram._upper_bounds
        self._new = [0] * len(self._bounds)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._sum += value
        self._new[bisect_left(self._bounds, value)] += 1

    def fold(self) -> None:
        # prometheus_client has no public way to add many observations at once.
        for bucket, new in zip(self._histogram._buckets, self._new, strict=True):
            if new:
                bucket.inc(new)
        self._histogram._sum.inc(self._sum)
        self._new = [0] * len(self._bounds)
        self._sum = 0.0


Labelled = TypeVar("Labelled", Counter, Histogram)
Made = TypeVar("Made", bound=Tally)


class ByLabels(Generic[Labelled, Made], dict[object, Made]):
    """A metric's tallies, `by_labels[pool]` or `by_labels[path, status]`. Each is looked up once,
    because Prometheus's `labels` costs more than the counting."""

    def __init__(self, metric: Labelled, make: Callable[[Labelled], Made]) -> None:
        super().__init__()
        self._metric: Labelled = metric
        self._make: Callable[[Labelled], Made] = make

    def __missing__(self, labels: object) -> Made:
        values = labels if isinstance(labels, tuple) else (labels,)
        tally: Made = self._make(self._metric.labels(*values))
        self[labels] = tally
        return tally

    def fold(self) -> None:
        for tally in self.values():
            tally.fold()

    def collect(self) -> Iterable[Metric]:
        """The Prometheus metric, with everything counted so far."""
        self.fold()
        return self._metric.collect()
