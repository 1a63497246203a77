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
from pando_sim.tuning.surrogate import Array, Surrogate, fitted
from pando_sim.tuning.sweep import PRESSURE, Told, best_of

ROUNDS, MUTANTS, PARENTS = 5, 100, 8
STEPS = (0.05, 0.15, 0.4)  # standard deviations of a change, of a knob's range
SWITCHED = 0.3  # how often a knob that may be off is switched
CAUTION = 1.0  # standard deviations, for candidates of a generation that have no score yet
LEAST_KEPT = 0.2  # chance of keeping the goal; far away, guesses of a large gain are worth nothing
REBALANCED = 0.5  # how often the pressure changes with the others


def propose(
    space: Space,
    guesses: "Guesses",
    known: Sequence[Values],
    pending: Sequence[Values],
    draw: random.Random,
) -> Values:
    """
    Args:
        known: were asked for before, and are not proposed again.
        pending: those of them that have no score yet.
    """
    expected = guesses.given(pending)
    parents = [guesses.best]
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


class Guesses:
    """From all candidates whose scores are known; fitted once for all proposals of a generation."""

    def __init__(self, space: Space, goal: Goal, told: Told) -> None:
        """`told`: at least one."""
        self.best = best_of(told, goal)
        self._space = space
        self._center = np.array(coordinates(space, self.best))
        self._points = self.points([values for values, _ in told])
        numbers = np.array([[score.price(goal), *score.excess(goal)] for _, score in told])
        self._numbers = list(numbers.T)
        self._scales = [fitted(self._points, column) for column in self._numbers]
        kept = [score.price(goal) for _, score in told if score.keeps(goal)]
        self.least_price = min(kept) if kept else None
        self.most_price = float(numbers[:, 0].max())

    def given(self, pending: Sequence[Values]) -> "_Expected":
        """Guesses stand for those that have no score yet: for what must be kept bad ones, so that
        a generation does not follow one guess, which may be wrong, with all of its candidates."""
        waiting = self.points(pending) if pending else self._points[:0]
        caution = [0.0] + [CAUTION] * (len(self._numbers) - 1)
        price, *excess = [
            _surrogate(self._points, numbers, scales, waiting, spreads)
            for numbers, scales, spreads in zip(self._numbers, self._scales, caution, strict=True)
        ]
        return _Expected(self, price, excess)

    def points(self, candidates: Sequence[Values]) -> Array:
        rows = np.array([coordinates(self._space, one) for one in candidates], dtype=np.float64)
        centered: Array = rows - self._center
        return centered


class _Expected:
    """How good other candidates may be."""

    def __init__(self, guesses: Guesses, price: Surrogate, excess: Sequence[Surrogate]) -> None:
        self._guesses = guesses
        self._price = price
        self._excess = excess

    def ranked(self, candidates: Sequence[Values], *, is_bold: bool) -> list[Values]:
        points = self._guesses.points(candidates)
        kept = np.ones(len(points))
        for one in self._excess:
            mean, spread = one.guess(points)
            kept *= _below(-mean / spread)
        mean, spread = self._price.guess(points)
        least = self._guesses.least_price
        gain = (self._guesses.most_price if least is None else least) - mean
        if is_bold:
            worth = np.where(kept > 0.5, gain, kept - 100)
        elif least is not None:
            z = gain / spread
            density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
            improvement = gain * _below(z) + spread * density
            worth = np.where(kept > LEAST_KEPT, improvement * kept, kept - 100)
        else:
            worth = kept
        return [candidates[place] for place in np.argsort(-worth, kind="stable")]


def _surrogate(
    points: Array, numbers: Array, scales: Array, waiting: Array, spreads: float
) -> Surrogate:
    """`spreads`: by how many standard deviations those that wait are worse than the guess."""
    known = Surrogate(points, numbers, scales)
    if not len(waiting):
        return known
    mean, spread = known.guess(waiting)
    numbers = np.append(numbers, mean + spreads * spread)
    return Surrogate(np.vstack([points, waiting]), numbers, scales)


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
