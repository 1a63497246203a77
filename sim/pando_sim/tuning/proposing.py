"""`propose`: the candidate of which most is expected, among mutants of the best one so far.

What is expected: that it keeps what must be kept, and improves on the best (Gardner and others,
Bayesian Optimization with Inequality Constraints, 2014). Every second one is what the surrogates
take for the best without regard to how sure they are, since there are few trials.
"""

import math
import random
from collections.abc import Sequence

import numpy as np

from pando_sim.tuning.coordinates import coordinates
from pando_sim.tuning.goal import Goal
from pando_sim.tuning.knobs import Knob, Value
from pando_sim.tuning.space import Space, Values
from pando_sim.tuning.surrogate import Array, Surrogate
from pando_sim.tuning.sweep import PRESSURE, Told, best_of

ROUNDS, MUTANTS, PARENTS = 5, 100, 8
STEPS = (0.05, 0.15, 0.4)  # standard deviations of a change, of a knob's range
SWITCHED = 0.3  # how often a knob that may be off is switched
LEAST_KEPT = 0.2  # chance of keeping the goal; far away, guesses of a large gain are worth nothing
REBALANCED = 0.5  # how often the pressure changes with the others


def propose(
    space: Space,
    goal: Goal,
    told: Told,
    pending: Sequence[Values],
    refused: Sequence[Values],
    draw: random.Random,
) -> Values:
    """
    Args:
        told: at least one.
        pending: were asked for, and have no score yet: guesses stand for them.
    """
    expected = _Expected(space, goal, told, pending)
    known = [*(values for values, _ in told), *pending, *refused]
    parents = [best_of(told, goal)]
    for _ in range(ROUNDS):
        new = [_mutant(space, parents[n % len(parents)], draw) for n in range(MUTANTS)]
        different = {tuple(one.values()): one for one in new + parents if one not in known}
        if different:
            ranked = expected.ranked(list(different.values()), is_bold=len(pending) % 2 == 0)
            parents = ranked[:PARENTS]
    return parents[0]


def another(space: Space, known: Sequence[Values], draw: random.Random) -> Values:
    """A mutant of the defaults, for when there is nothing to guess from."""
    made = space.defaults
    for _ in range(MUTANTS):
        made = _mutant(space, space.defaults, draw)
        if made not in known:
            break
    return made


class _Expected:
    """How good other candidates may be, by those whose scores are known."""

    def __init__(self, space: Space, goal: Goal, told: Told, pending: Sequence[Values]) -> None:
        self._space = space
        self._center = np.array(coordinates(space, best_of(told, goal)))
        points = self._points([values for values, _ in told])
        waiting = self._points(pending) if pending else points[:0]
        numbers = np.array([[score.price(goal), *score.excess(goal)] for _, score in told])
        kept = [score.price(goal) for _, score in told if score.keeps(goal)]
        self._has_kept = bool(kept)
        self._best = min(kept) if kept else float(numbers[:, 0].max())
        self._price, *self._excess = [
            _surrogate(points, numbers[:, column], waiting) for column in range(numbers.shape[1])
        ]

    def ranked(self, candidates: Sequence[Values], *, is_bold: bool) -> list[Values]:
        points = self._points(candidates)
        kept = np.ones(len(points))
        for one in self._excess:
            mean, spread = one.guess(points)
            kept *= _below(-mean / spread)
        mean, spread = self._price.guess(points)
        gain = self._best - mean
        if is_bold:
            worth = np.where(kept > 0.5, gain, kept - 100)
        elif self._has_kept:
            z = gain / spread
            density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
            improvement = gain * _below(z) + spread * density
            worth = np.where(kept > LEAST_KEPT, improvement * kept, kept - 100)
        else:
            worth = kept
        return [candidates[place] for place in np.argsort(-worth, kind="stable")]

    def _points(self, candidates: Sequence[Values]) -> Array:
        rows = np.array([coordinates(self._space, one) for one in candidates], dtype=np.float64)
        centered: Array = rows - self._center
        return centered


def _surrogate(points: Array, numbers: Array, waiting: Array) -> Surrogate:
    if len(waiting):
        guesses, _ = Surrogate(points, numbers).guess(waiting)
        points, numbers = np.vstack([points, waiting]), np.append(numbers, guesses)
    return Surrogate(points, numbers)


def _below(z: Array) -> Array:
    """The normal distribution's share below."""
    return np.array([(1 + math.erf(one / math.sqrt(2))) / 2 for one in z])


def _mutant(space: Space, values: Values, draw: random.Random) -> Values:
    """With one to three other fields, and often another pressure."""
    made = dict(values)
    knobs = draw.sample(space.knobs, min(len(space.knobs), draw.choice((1, 1, 2, 3))))
    if draw.random() < REBALANCED:
        knobs += [one for one in space.knobs if one.path == PRESSURE]
    for knob in knobs:
        made[knob.path] = _changed(knob, made[knob.path], draw)
    return space.settled(made)


def _changed(knob: Knob, value: Value, draw: random.Random) -> Value:
    if knob.choices:
        return draw.choice(knob.choices)
    if knob.may_be_off and value is not None and draw.random() < SWITCHED:
        return None
    if value is None:
        return knob.at(draw.random()) if draw.random() < SWITCHED else None
    place = knob.place(float(value)) + draw.gauss(0.0, draw.choice(STEPS))
    return knob.at(min(1.0, max(0.0, place)))
