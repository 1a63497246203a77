"""Which fields matter most, by guesses around the best candidate."""

import numpy as np

from pando_sim.tuning.coordinates import coordinates
from pando_sim.tuning.goal import Goal
from pando_sim.tuning.knobs import Knob, Value
from pando_sim.tuning.space import Space
from pando_sim.tuning.surrogate import Array, Surrogate, fitted
from pando_sim.tuning.sweep import Told, best_of

LEAST = 20  # candidates
PLACES = 5  # of a knob's range


def importances(space: Space, goal: Goal, told: Told) -> list[dict[str, float]]:
    """For GPU-hours and for misses: how far the guess for the best candidate moves while one knob
    alone goes through its range, as a share of the sum over all knobs, by path. Empty if there are
    too few candidates to say."""
    if len(told) < LEAST:
        return []
    best = best_of(told, goal)
    center = np.array(coordinates(space, best))
    points = np.array([coordinates(space, values) for values, _ in told]) - center
    hours = [score.log_hours for _, score in told]
    missed = [score.log_missed for _, score in told]
    found = []
    for numbers in map(np.array, (hours, missed)):
        surrogate = Surrogate(points, numbers, fitted(points, numbers))
        moves = {}
        for knob in space.knobs:
            turned = [best | {knob.path: value} for value in _range(knob)]
            along: Array = np.array([coordinates(space, one) for one in turned]) - center
            moves[knob.path] = float(np.ptp(surrogate.guess(along)[0]))
        whole = sum(moves.values()) or 1.0
        found.append({path: move / whole for path, move in moves.items()})
    return found


def _range(knob: Knob) -> list[Value]:
    if knob.choices:
        return list(knob.choices)
    places: list[Value] = [knob.at(float(place)) for place in np.linspace(0.0, 1.0, PLACES)]
    return [*places, None] if knob.may_be_off else places
