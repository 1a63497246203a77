"""`ByResponseRatio`: the order of `hrrn`, which says what the ratio is."""

from collections.abc import Iterator
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from pando_worker.policies.schedule.order import Clock, MatchesView, ReqT

_FIRST = 32  # requests that are put in order at first; seldom more are admitted at once
_AT_ONCE_S = 0.001  # added to the time waited, so that those that came at once go by their work


class ByResponseRatio(Generic[ReqT]):
    """The ratios change with time, each at its own rate, so they are computed when asked for: a few
    operations on arrays, whose entries are in no order."""

    def __init__(self, matches: MatchesView[ReqT], clock: Clock) -> None:
        self._matches = matches
        self._clock = clock
        self._reqs: list[ReqT] = []
        self._index: dict[ReqT, int] = {}
        self._queued_at = np.zeros(64)
        self._work = np.zeros(64)  # tokens to compute, at least 1

    def add(self, req: ReqT) -> None:
        index = len(self._reqs)
        if index == len(self._work):
            self._queued_at = np.resize(self._queued_at, 2 * index)
            self._work = np.resize(self._work, 2 * index)
        self._reqs.append(req)
        self._index[req] = index
        self._queued_at[index] = req.queued_at
        self.changed(req)

    def discard(self, req: ReqT) -> None:
        index = self._index.pop(req)
        last = self._reqs.pop()
        if last is not req:
            end = len(self._reqs)
            self._reqs[index] = last
            self._index[last] = index
            self._queued_at[index] = self._queued_at[end]
            self._work[index] = self._work[end]

    def changed(self, req: ReqT) -> None:
        self._work[self._index[req]] = max(1, req.num_tokens - self._matches.hit(req))

    def __iter__(self) -> Iterator[ReqT]:
        waited = self._clock() - self._queued_at[: len(self._reqs)] + _AT_ONCE_S
        ratio = waited / self._work[: len(self._reqs)]
        left = np.arange(len(ratio))
        if len(left) > _FIRST:
            parts = np.argpartition(-ratio, _FIRST)
            first, left = parts[:_FIRST], parts[_FIRST:]
            yield from self._in_order(first, ratio)
        yield from self._in_order(left, ratio)

    def _in_order(self, which: NDArray[np.intp], ratio: NDArray[np.float64]) -> Iterator[ReqT]:
        for index in which[np.argsort(-ratio[which], kind="stable")].tolist():
            yield self._reqs[index]
