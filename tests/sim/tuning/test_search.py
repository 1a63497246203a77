"""Which candidates are tried: the same for the same seed, and better ones than at random."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pando_sim.tuning.coordinates import coordinates
from pando_sim.tuning.goal import Goal
from pando_sim.tuning.knobs import scaling_knobs
from pando_sim.tuning.score import Score
from pando_sim.tuning.search import GENERATION, Search
from pando_sim.tuning.space import Space, Values
from pando_sim.tuning.surrogate import Surrogate, fitted
from pando_sim.tuning.sweep import best_of, sweep
from tests.sim.tuning.manifests import GOAL, document, outcome, space

PRESSURE, WINDOW = "scaling.target.pressure", "scaling.windowSeconds"


def valley(values: Values) -> Score:
    """Hours fall with the pressure, misses rise with it and with the distance from a window."""
    pressure, window = values[PRESSURE], values[WINDOW]
    assert isinstance(pressure, float)
    assert isinstance(window, float)
    missed = 0.002 * 10 ** (2 * pressure) + abs(window - 20) / 2000
    return outcome(100 * (1.2 - pressure), min(1.0, missed))


def asked(
    here: Space, seed: int, trials: int, truth: Callable[[Values], Score] = valley
) -> list[tuple[Values, Score]]:
    search, found = Search(here, GOAL, seed), []
    for _ in range(trials // GENERATION):
        for values in [search.ask() for _ in range(GENERATION)]:
            found.append((values, truth(values)))
            search.tell(values, truth(values))
    return found


def test_the_same_seed_asks_for_the_same_candidates() -> None:
    here = space()
    first, again, other = (asked(here, seed, 24) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_it_begins_with_today_the_defaults_and_other_pressures() -> None:
    here = space(windowSeconds=60)
    first = [values for values, _ in asked(here, 0, 6)]
    assert [values[WINDOW] for values in first] == [60, *[30] * 5]
    assert first[1] == here.defaults
    assert [values[PRESSURE] for values in first[2:]] == [0.2, 0.35, 0.5, 0.85]
    assert all(len(here.defaults.items() - values.items()) <= 1 for values in first)


def test_it_narrows_the_pressure_to_where_the_goal_is_just_kept() -> None:
    def misses(goal: Goal) -> list[list[float]]:
        """Pressures of the first two generations; 1 % is missed at 0.43, and costs fall."""
        here, told, found = space(), list[tuple[Values, Score]](), list[list[float]]()
        steps = sweep(here, goal, told)
        for _ in range(2):
            group = next(steps)
            pressures = [float(values[PRESSURE] or 0.0) for values in group]
            told += [
                (values, outcome(100 * (1.2 - pressure), 0.01 * 2 ** (20 * (pressure - 0.43))))
                for values, pressure in zip(group, pressures, strict=True)
            ]
            found.append(pressures)
        return found

    assert misses(GOAL)[1] == [0.38, 0.41, 0.44, 0.47], "from 0.35, which keeps it, to 0.5"
    budget = replace(GOAL, budget=60.0)  # paid for from a pressure of 0.6 on
    assert misses(budget)[1] == [0.54, 0.58, 0.62, 0.66], "from 0.5 to the 0.7 of the defaults"


def test_other_fields_are_turned_where_the_pressure_just_keeps_the_goal() -> None:
    here, told = space(), list[tuple[Values, Score]]()
    steps = sweep(here, GOAL, told)
    for _ in range(2):
        told += [(values, valley(values)) for values in next(steps)]
    base = best_of(told, GOAL)
    for values in next(steps):
        assert values[PRESSURE] == base[PRESSURE]
        assert len(values.items() - base.items()) == 1


def test_importance_names_the_field_that_matters() -> None:
    search, here = Search(space(), GOAL, 0), space()
    assert search.importances() == []
    for _ in range(10):
        for values in [search.ask() for _ in range(GENERATION)]:
            search.tell(values, valley(values))
    hours, _ = search.importances()
    assert max(hours, key=lambda path: hours[path]) == PRESSURE
    assert hours.keys() == {knob.path for knob in here.knobs}


def test_a_refused_candidate_is_passed_over() -> None:
    search = Search(space(), GOAL, 0)
    values = search.ask()
    search.tell(values, None)
    assert search.ask()[PRESSURE] == 0.2


def coupled(values: Values) -> Score:
    """The best window alone saves nothing: it costs, but then a higher pressure keeps the goal."""
    pressure, window = float(values[PRESSURE] or 0.0), float(values[WINDOW] or 0.0)
    near = abs(math.log(window / 90))
    missed = 0.01 * 10 ** (4 * (pressure - 0.4) + near - 1)
    return outcome((100 + 5 * (1.1 - near)) * (1.2 - pressure), min(1.0, missed))


def test_it_finds_what_changes_of_several_fields_together_save() -> None:
    here = space()
    plain = here.defaults
    whole = [
        plain | {PRESSURE: pressure / 100, WINDOW: float(window)}
        for pressure in range(15, 96)
        for window in range(5, 181)
    ]
    least = min(one.gpu_hours for one in map(coupled, whole) if one.meets(GOAL))
    for seed in range(2):
        found = [score for _, score in asked(here, seed, 60, coupled)]
        assert min(one.gpu_hours for one in found if one.meets(GOAL)) < 1.05 * least


def test_a_generation_does_not_follow_a_wrong_guess_with_all_of_its_candidates() -> None:
    here = space()
    found = asked(here, 2, 60, coupled)
    again = 0  # misses near one of the same generation
    for first in range(24, 60, GENERATION):
        missed = [
            np.array(coordinates(here, values))
            for values, score in found[first : first + GENERATION]
            if not score.keeps(GOAL)
        ]
        for place, point in enumerate(missed):
            again += any(np.linalg.norm(point - other) < 0.25 for other in missed[:place])
    assert again <= 1


def test_fields_that_decide_are_told_from_those_that_do_not() -> None:
    draw = np.random.default_rng(0)
    points = draw.random((30, 12))
    numbers = np.sin(4 * points[:, 3]) + 2 * points[:, 7] * points[:, 3]
    scales = fitted(points, numbers)
    assert set(np.argsort(-scales)[:2]) == {3, 7}
    other = draw.random((50, 12))
    truth = np.sin(4 * other[:, 3]) + 2 * other[:, 7] * other[:, 3]
    off = [
        np.abs(Surrogate(points, numbers, one).guess(other)[0] - truth).mean()
        for one in (scales, np.full(12, scales.mean()))
    ]
    assert off[0] < off[1] / 2, "than if all fields counted alike"


def test_no_candidate_is_asked_for_twice() -> None:
    def by_pressure(values: Values) -> Score:
        pressure = float(values[PRESSURE] or 0.0)
        return outcome(100 * (1.2 - pressure), 0.01 * 10 ** (4 * (pressure - 0.4)))

    few = Space(document(), "cache_aware", scaling_knobs(GOAL, 6)[:2])
    for here in (space(), few):
        found = [values for values, _ in asked(here, 0, 30, by_pressure)]
        assert all(found.count(values) == 1 for values in found)
