"""`sweep`: the candidates that a search begins with, before a model of them chooses.

The load that a pool aims for decides more than any other field, and costs fall with it while misses
rise. So it is tried first, alone, and narrowed to where the goal is just kept; the other fields are
turned there, each alone, where they can save something.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from pando_sim.tuning.goal import Goal
from pando_sim.tuning.score import Score
from pando_sim.tuning.space import Space, Values

PRESSURE = "scaling.target.pressure"
BETWEEN = 4  # pressures in one narrowing

Told = Sequence[tuple[Values, Score]]
"""Candidates whose scores are known."""


def sweep(space: Space, goal: Goal, told: Told) -> Iterator[list[Values]]:
    """Candidates that do not depend on each other, again and again. `told` must have the scores of
    those before when the next ones are asked for."""
    plain = space.defaults
    paths = [knob.path for knob in space.knobs]
    first = [space.today, plain]
    if PRESSURE in paths:
        knob = space.knobs[paths.index(PRESSURE)]
        yield first + [plain | {PRESSURE: value} for value in knob.tries]
        low, high = _bracket(_pressures(plain, told), goal, (knob.low, knob.high))
        inner = np.linspace(low, high, BETWEEN + 2)[1:-1]
        values = dict.fromkeys(knob.rounded(float(value)) for value in inner)
        yield [plain | {PRESSURE: value} for value in values]
    else:
        yield first
    base = best_of(told, goal)
    yield [
        base | {knob.path: value}
        for knob in space.knobs
        if knob.path != PRESSURE
        for value in (knob.tries or knob.choices)
        if value != base[knob.path]
    ]


def best_of(told: Told, goal: Goal) -> Values:
    """The values with the cheapest score that keeps the goal; else those that come closest."""
    whole = [one for one in told if one[1].is_whole] or told
    return min(whole, key=lambda one: (max(0.0, *one[1].excess(goal)), one[1].price(goal)))[0]


def _pressures(plain: Values, told: Told) -> list[tuple[float, Score]]:
    """The scores of the defaults with another pressure each, the lowest first."""
    found = {
        float(values[PRESSURE] or 0.0): score
        for values, score in told
        if values | {PRESSURE: None} == plain | {PRESSURE: None}
    }
    return sorted(found.items(), key=lambda one: one[0])


def _bracket(
    known: Sequence[tuple[float, Score]], goal: Goal, ends: tuple[float, float]
) -> tuple[float, float]:
    """The pressures around the place where the goal begins, or ends, to be kept."""
    kept = [value for value, score in known if score.keeps(goal)]
    others = [value for value, _ in known if value not in kept]
    if goal.budget is not None:  # the lowest pressure that it pays for misses least
        high = min(kept, default=ends[1])
        return max((one for one in others if one < high), default=ends[0]), high
    low = max(kept, default=ends[0])
    return low, min((one for one in others if one > low), default=ends[1])
