"""An excerpt of a part of a trace: stretches of its quiet and busy times, one after the other.

A run of it takes a fraction of the time. The part is cut into windows, which are sorted into strata
by their busiest minute, so that rare bursts get their own. One window of each stratum is played,
and has the weight of all of them. The quietest one is played first, and from then on each is
busier: a pool never has to shrink for the next one, and nearly all GPU-hours are known before the
bursts, which have most of the requests, so that runs that cost too much need not play these. The
minutes before a window are played, too, so that it begins with the pool that they leave, and weigh
nothing. GPU-hours, misses and requests are sums over stretches times weights: estimates of those of
the part.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pando_sim.day_clock import DayClock
from pando_sim.request import Request

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MINUTE_S = 60.0
STRETCHES = 6  # of the shortest length, where most of the requests allow that
LEAST_STRETCHES = 3  # night, day, bursts
SHORTEST_S, LONGEST_S = 480.0, 1200.0
"""Of a stretch: a pool needs minutes to follow a load, and minutes to come back from it."""
SETTLING_S, GROWING_S = 600.0, 180.0
"""Played before the first stretch, as a pool begins with empty caches, and before each other one,
for which it has to grow."""
NEAR = 6  # minutes around the edge of a stretch


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A trace of its own: numbers and times are from 0 on, and an answer outside of it is not
    waited for."""

    requests: list[Request]
    edges_s: tuple[float, ...]  # of pieces with one weight each, in its own time, from 0 on
    weights: tuple[float, ...]  # of the pieces
    begins_s: tuple[float, ...]  # of the pieces, in the trace's time

    def request_weights(self) -> Floats:
        """How many requests of the part each request stands for, by number."""
        times = np.array([one.at_s for one in self.requests])
        pieces = np.searchsorted(self.edges_s[1:-1], times, side="right")
        return np.array(self.weights)[pieces]

    def weighed(self, times: Sequence[float], totals: Sequence[float]) -> float:
        """The part's total of what has these running totals at these times."""
        grown = np.diff(np.interp(self.edges_s, times, totals))
        return float(grown @ np.array(self.weights))

    def seconds_until(self, at_s: float) -> float:
        """How many of the part's seconds have passed, by weight, at a time of the excerpt."""
        reached = np.minimum(self.edges_s, at_s)
        return float((reached[1:] - reached[:-1]) @ np.array(self.weights))

    def clock(self, trace: DayClock, speed: float) -> DayClock:
        """Of a run of it at this speed of arrivals: each piece has its own hours in the trace."""
        begins = tuple(trace.unix_at(begin_s) for begin_s in self.begins_s)
        return DayClock(self.edges_s[:-1], begins, speed)

    @property
    def part_s(self) -> float:
        return self.seconds_until(self.edges_s[-1])


def all_of(requests: Sequence[Request], begin_s: float = 0.0) -> Excerpt:
    """The whole part, which begins then in the trace; each request stands for itself."""
    end_s = requests[-1].at_s if requests else 0.0
    return Excerpt(list(requests), (0.0, end_s), (1.0,), (begin_s,))


def excerpt(requests: Sequence[Request], most: int, begin_s: float = 0.0) -> Excerpt:
    """About `most` of the requests, but of three stretches at least; all if there are not more.

    Args:
        requests: of the part, in order, with times from 0 on.
        begin_s: of the part, in the trace.
    """
    share = most / max(1, len(requests))
    if share >= 1:
        return all_of(requests, begin_s)
    end_s = requests[-1].at_s
    stretch_s = min(max(end_s * share / STRETCHES, SHORTEST_S), LONGEST_S)
    windows = _Windows(np.array([one.at_s for one in requests]), max(1, round(end_s / stretch_s)))
    if windows.count <= LEAST_STRETCHES:
        return all_of(requests, begin_s)
    strata = [np.argsort(windows.busiest, kind="stable")]
    chosen = windows.chosen(strata)
    while len(strata) < windows.count:
        # Squares: nearly all misses come from bursts, which are few.
        strata = _split_once(strata, windows.busiest**2)
        more = windows.chosen(strata)
        if len(strata) > LEAST_STRETCHES and windows.played(more) > most:
            break
        chosen = more
    return _played(requests, windows, chosen, begin_s)


class _Windows:
    """About equally long ones, which together are the part. Their edges are whole minutes, where
    few requests are near, so that a burst is hardly cut."""

    def __init__(self, times: Floats, count: int) -> None:
        self.count = count
        self._times = times
        minutes = np.bincount((times / MINUTE_S).astype(np.int64))
        near = np.convolve(minutes, np.ones(NEAR), mode="same")
        even = times[-1] / MINUTE_S / count
        firsts = [0]  # minutes of the windows
        for number in range(1, count):
            low, high = (int((number + side / 3) * even) for side in (-1, 1))
            firsts.append(low + int(near[low:high].argmin()))
        self.edges_s = np.array([*firsts, times[-1] / MINUTE_S]) * MINUTE_S
        self.busiest = np.maximum.reduceat(minutes, firsts).astype(np.float64)  # requests a minute
        self._loads = np.add.reduceat(minutes, firsts)
        lead = int(SETTLING_S / MINUTE_S)
        before = [minutes[max(0, first - lead) : first].max(initial=0) for first in firsts]
        self._is_after_more = np.array(before) > self.busiest
        self._seconds = np.diff(self.edges_s)

    def chosen(self, strata: Sequence[Ints]) -> dict[int, float]:
        """The window of each stratum that has most nearly the stratum's rate, and how many times
        its length the stratum has; in the order in which they are played. If there are others, not
        one to which a busier time before it leaves its replicas, and none that is one of the less
        even half: of windows that are alike but for a small burst in some, most have none."""
        found = {}
        for stratum in strata:
            loads, seconds = self._loads[stratum], self._seconds[stratum]
            off = np.abs(loads / seconds - loads.sum() / seconds.sum())
            peaks = self.busiest[stratum] * seconds / np.maximum(loads, 1)
            is_odd = self._is_after_more[stratum] | (peaks > np.median(peaks))
            nearest = np.lexsort((off, is_odd))[0]
            found[int(stratum[nearest])] = float(seconds.sum() / seconds[nearest])
        return dict(sorted(found.items(), key=lambda one: self.busiest[one[0]]))

    def begins_s(self, chosen: dict[int, float]) -> list[float]:
        """From when each is played."""
        leads_s = (SETTLING_S, *[GROWING_S] * len(chosen))
        found = list[float]()
        for window, lead_s in zip(chosen, leads_s, strict=False):
            until_s = max((self.edges_s[one + 1] for one in chosen if one < window), default=0.0)
            found.append(max(float(until_s), float(self.edges_s[window]) - lead_s))
        return found

    def played(self, chosen: dict[int, float]) -> int:
        """How many requests they have, about, with those before them."""
        ends = self.edges_s[[window + 1 for window in chosen]]
        return int((self._until(ends) - self._until(np.array(self.begins_s(chosen)))).sum())

    def _until(self, times: Floats) -> Ints:
        return np.searchsorted(self._times, times)


def _split_once(strata: list[Ints], values: Floats) -> list[Ints]:
    """Splits the stratum, each ordered by value, whose halves differ most."""
    gains = [_best_split(values[stratum]) for stratum in strata]
    which = max(range(len(strata)), key=lambda number: gains[number][0])
    split, place = strata[which], gains[which][1]
    return [*strata[:which], split[:place], split[place:], *strata[which + 1 :]]


def _best_split(values: Floats) -> tuple[float, int]:
    """How much less the variance of an estimate is by a split, and the place of the best one.

    One window stands for n, so the variance is n times the sum of the squared differences from the
    mean: n * (sum of squares) - (sum)².
    """
    count = len(values)
    if count < 2:
        return -1.0, 0
    low, sums, squares = np.arange(1, count), values.cumsum(), (values**2).cumsum()
    below = low * squares[:-1] - sums[:-1] ** 2
    above = (count - low) * (squares[-1] - squares[:-1]) - (sums[-1] - sums[:-1]) ** 2
    gains = count * squares[-1] - sums[-1] ** 2 - below - above
    best = int(gains.argmax())
    return float(gains[best]), best + 1


def _played(
    requests: Sequence[Request], windows: _Windows, chosen: dict[int, float], part_s: float
) -> Excerpt:
    edges_s, weights, begins_s, found = [0.0], list[float](), list[float](), list[Request]()
    numbers: dict[int, int] = {}
    times = [one.at_s for one in requests]
    for (window, weight), from_s in zip(chosen.items(), windows.begins_s(chosen), strict=True):
        begin_s, end_s = windows.edges_s[window : window + 2].tolist()
        moved_s = edges_s[-1] - from_s
        first, last = np.searchsorted(times, (from_s, end_s))
        if window == windows.count - 1:
            last = len(requests)
        for one in requests[first:last]:
            after = None if one.after is None else numbers.get(one.after)
            numbers[one.number] = len(found)
            at_s = max(one.at_s + moved_s, edges_s[-1])  # sums are rounded
            found.append(replace(one, number=len(found), at_s=at_s, after=after))
        edges_s += [edges_s[-1] + begin_s - from_s, edges_s[-1] + end_s - from_s]
        weights += [0.0, weight]
        begins_s += [part_s + from_s, part_s + begin_s]
    return Excerpt(found, tuple(edges_s), tuple(weights), tuple(begins_s))
