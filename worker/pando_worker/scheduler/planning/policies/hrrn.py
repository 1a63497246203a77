"""`hrrn`: the highest response ratio first, 1 + waited / seconds of the request's own prefill
(Brinch Hansen, 1971).

A short prompt, or one that is mostly cached, goes before a long one, until that has waited as many
times its own length. The rate of prefill cancels out: all prompts are computed at the same.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pando_worker.scheduler.planning.matches import Matches
from pando_worker.scheduler.planning.policies.order import Clock, Order
from pando_worker.scheduler.req import Req

_FIRST = 32  # requests that are put in order at first; seldom more are admitted at once
_AT_ONCE_S = 0.001  # added to the time waited, so that those that came at once go by their work


class _ByResponseRatio:
    """The ratios change with time, each at its own rate, so they are computed when asked for: a few
    operations on arrays, whose entries are in no order."""

    def __init__(self, matches: Matches, clock: Clock) -> None:
        self._matches = matches
        self._clock = clock
        self._reqs: list[Req] = []
        self._index: dict[Req, int] = {}
        self._queued_at = np.empty(64)
        self._work = np.empty(64)  # tokens to compute, at least 1

    def add(self, req: Req) -> None:
        index = len(self._reqs)
        if index == len(self._work):
            self._queued_at = np.resize(self._queued_at, 2 * index)
            self._work = np.resize(self._work, 2 * index)
        self._reqs.append(req)
        self._index[req] = index
        self._queued_at[index] = req.queued_at
        self.changed(req)

    def discard(self, req: Req) -> None:
        index = self._index.pop(req)
        last = self._reqs.pop()
        if last is not req:
            end = len(self._reqs)
            self._reqs[index] = last
            self._index[last] = index
            self._queued_at[index] = self._queued_at[end]
            self._work[index] = self._work[end]

    def changed(self, req: Req) -> None:
        self._work[self._index[req]] = max(1, req.num_tokens - self._matches.hit(req))

    def __iter__(self) -> Iterator[Req]:
        waited = self._clock() - self._queued_at[: len(self._reqs)] + _AT_ONCE_S
        ratio = waited / self._work[: len(self._reqs)]
        left = np.arange(len(ratio))
        if len(left) > _FIRST:
            parts = np.argpartition(-ratio, _FIRST)
            first, left = parts[:_FIRST], parts[_FIRST:]
            yield from self._in_order(first, ratio)
        yield from self._in_order(left, ratio)

    def _in_order(self, which: NDArray[np.intp], ratio: NDArray[np.float64]) -> Iterator[Req]:
        for index in which[np.argsort(-ratio[which], kind="stable")].tolist():
            yield self._reqs[index]


def hrrn(matches: Matches, clock: Clock) -> Order:
    return _ByResponseRatio(matches, clock)
