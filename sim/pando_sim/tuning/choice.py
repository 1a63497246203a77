"""The front of the candidates, and the point on it that is recommended."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pando_sim.tuning.goal import ALLOWED, HOPELESS, WEEK_HOURS, Goal
from pando_sim.tuning.score import Score
from pando_sim.tuning.space import Values
from pando_sim.tuning.watch import Bounds

CLIFF = 2 * ALLOWED
"""A worst case that misses more than this, and more than today's manifest does, is a cliff."""

STEP = 1.05
"""By which ratio of GPU-hours candidates differ that are played on the longer excerpt, or judged
after the best one."""

DEAREST = 1.5
"""So many times the GPU-hours of the cheapest that keeps the goal a candidate may cost: dearer ones
are played on the longer excerpt, or judged, only if that one fails there."""


@dataclass(slots=True)
class Point:
    """A candidate and what its runs said. Each dict has an outcome by the variation's name."""

    name: str  # of the candidate
    values: Values
    searched: Score  # of the shorter excerpt, if it was not played on the longer one
    tried: Score | None = None  # of the shorter excerpt, if it was played on the longer one
    varied: dict[str, Score] = field(default_factory=dict)  # on the part that was searched
    judged: Score | None = None

    @property
    def worst(self) -> tuple[str, Score] | None:
        """The variation with the most misses; None if none was run."""
        return max(self.varied.items(), key=lambda one: one[1].missed, default=None)


def front(points: Sequence[Point]) -> list[Point]:
    """The points that no other one beats, from the cheapest on; of equal ones the first."""
    kept: list[Point] = []
    whole = [one for one in points if one.searched.is_whole]
    for one in sorted(whole, key=lambda one: (one.searched.gpu_hours, one.searched.missed)):
        if not kept or one.searched.missed < kept[-1].searched.missed:
            kept.append(one)
    return kept


def most_missed(today: Point, goal: Goal) -> float:
    """The share of requests that a candidate may miss: one with more than twice what is allowed
    cannot keep the goal, and one with more than today's has not the fewest misses."""
    if goal.as_today:
        return 2 * today.searched.missed
    return max(HOPELESS if goal.budget is not None else 2 * ALLOWED, today.searched.missed)


def bounds_of(points: Sequence[Point], today: Point, goal: Goal) -> Bounds:
    """When a run of another candidate is lost."""
    if goal.budget is not None:
        most_hours = goal.budget * today.searched.hours / WEEK_HOURS
    else:
        kept = [one.searched.gpu_hours for one in points if one.searched.keeps(goal)]
        most_hours = min(kept, default=math.inf)
    return Bounds(
        front=tuple((one.searched.gpu_hours, one.searched.missed) for one in front(points)),
        most_missed=most_missed(today, goal),
        most_hours=DEAREST * most_hours,
    )


def _line(points: Sequence[Point], goal: Goal) -> list[Point]:
    """The points of the front, and between them those that keep the goal's times, each dearer by
    `STEP`: an excerpt's misses are of a few requests, so that fewer of them say little."""
    found: list[Point] = []
    fewest = math.inf
    whole = [one for one in points if one.searched.is_whole]
    for one in sorted(whole, key=lambda one: (one.searched.gpu_hours, one.searched.missed)):
        is_next = bool(found) and one.searched.gpu_hours >= STEP * found[-1].searched.gpu_hours
        if one.searched.missed < fewest or (is_next and one.searched.meets(goal)):
            found.append(one)
            fewest = min(fewest, one.searched.missed)
    return found


def next_ones(tried: Sequence[Point], played: Sequence[Point], goal: Goal) -> list[Point]:
    """Which of the points that were tried on an excerpt to play on the longer one next: along their
    line, first the best and its dearer neighbour; then cheaper ones as long as the cheapest keeps
    the goal's times, or dearer ones as long as none does. With a budget: dearer ones as long as it
    pays for the dearest, or cheaper ones as long as it pays for none.

    `played`: the results for those that earlier calls returned, by the same names.
    """
    line = _line(tried, goal)
    places = {one.name: place for place, one in enumerate(line)}
    if not played:
        first = places[in_order(line, goal)[0].name]
        return line[first : first + 2]
    known = {places[one.name]: one for one in played}
    low, high = min(known), max(known)
    dearer, cheaper = line[high + 1 : high + 3], line[max(0, low - 2) : low]
    if goal.budget is None:
        if known[low].searched.meets(goal):
            return cheaper
        return [] if any(one.searched.meets(goal) for one in played) else dearer
    if known[high].searched.gpu_hours_a_week <= goal.budget:
        return dearer
    paid = any(one.searched.gpu_hours_a_week <= goal.budget for one in played)
    return [] if paid else cheaper


def in_order(points: Sequence[Point], goal: Goal) -> list[Point]:
    """The points that may be recommended, the best first.

    Without a budget: those that keep the goal's times, by cost; if none does, the one with the
    fewest misses. With a budget: those that it pays for, by misses; if it pays for none, the
    cheapest.
    """
    on_front = front(points)
    if goal.budget is not None:
        paid = [one for one in on_front if one.searched.gpu_hours_a_week <= goal.budget]
        return sorted(paid, key=lambda one: one.searched.missed) or on_front[:1]
    whole = [one for one in points if one.searched.is_whole]
    kept = [one for one in whole if one.searched.meets(goal)]
    cost = sorted(kept, key=lambda one: (one.searched.gpu_hours, one.searched.missed))
    return cost or on_front[-1:]


def is_on_cliff(point: Point, today: Point) -> bool:
    """Whether one of its variations is bad, and worse than today's worst."""
    worst, known = point.worst, today.worst
    if worst is None:
        return False
    least = CLIFF if known is None else max(CLIFF, known[1].missed)
    return worst[1].missed > least


def recommended(ordered: Sequence[Point], today: Point) -> Point:
    """The first that is not on a cliff; if all are, the one whose worst case is the best.

    `ordered`: at least one.
    """
    for point in ordered:
        if not is_on_cliff(point, today):
            return point
    return min(ordered, key=lambda one: one.worst[1].missed if one.worst else 0.0)


def preferred(best: Point, others: Sequence[Point], today: Point, goal: Goal) -> Point:
    """The best on the part that was searched, unless the part that judges says that another one is
    better. Those that were not judged, or are on a cliff, are not."""
    chosen = best
    for one in others:
        if not is_on_cliff(one, today) and _is_better(one.judged, chosen.judged, goal):
            chosen = one
    return chosen


def next_judged(
    finalists: Sequence[Point], best: Point, others: Sequence[Point], today: Point, goal: Goal
) -> Point | None:
    """The finalist to judge next, as a dearer one may keep on the other part what the best one just
    misses there. None if one that is no dearer keeps what was asked for, or none is left.

    `finalists`: the best of the part that was searched, by cost; `others`: judged like `best`.
    """
    chosen = preferred(best, others, today, goal)
    has_kept = chosen.judged is not None and chosen.judged.keeps(goal)
    most = chosen.searched.gpu_hours if has_kept else math.inf
    known = [best, *others]
    for one in finalists:
        cost = one.searched.gpu_hours
        is_near = any(cost / STEP < each.searched.gpu_hours <= cost for each in known)
        is_between = best.searched.gpu_hours < cost < most and goal.budget is None
        if is_between and not is_near and one not in known:
            return one
    return None


def _is_better(one: Score | None, other: Score | None, goal: Goal) -> bool:
    if one is None or other is None:
        return False
    if one.keeps(goal) or other.keeps(goal):
        is_cheaper = one.price(goal) < other.price(goal)
        return one.keeps(goal) and (is_cheaper or not other.keeps(goal))
    return one.beats(other)


def no_worse(without: Score, best: Score, goal: Goal) -> bool:
    """Whether a field that was set back changes nothing that counts: half a percent of the cost,
    and misses that are still allowed or no more than they were."""
    if not without.is_whole or without.gpu_hours > best.gpu_hours * 1.005:
        return False
    return without.missed <= best.missed or (best.meets(goal) and without.meets(goal))


def saved(point: Score, other: Score) -> float:
    """The share of the other's GPU-hours that it needs less."""
    return 1 - point.gpu_hours / other.gpu_hours
