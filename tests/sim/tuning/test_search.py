"""Which candidates are tried: the same for the same seed, and better ones than at random."""

import random

from pando_sim.tuning.score import Score
from pando_sim.tuning.search import GENERATION, Search
from pando_sim.tuning.space import Space, Values
from tests.sim.tuning.manifests import outcome, space

PRESSURE, WINDOW = "scaling.target.pressure", "scaling.windowSeconds"


def valley(values: Values) -> Score:
    """Hours fall with the pressure, misses rise with it and with the distance from a window."""
    pressure, window = values[PRESSURE], values[WINDOW]
    assert isinstance(pressure, float)
    assert isinstance(window, float)
    missed = 0.002 * 10 ** (2 * pressure) + abs(window - 20) / 2000
    return outcome(100 * (1.2 - pressure), min(1.0, missed))


def asked(here: Space, seed: int, trials: int) -> list[tuple[Values, Score]]:
    search, found = Search(here, seed), []
    for _ in range(trials // GENERATION):
        for trial, values in [search.ask() for _ in range(GENERATION)]:
            found.append((values, valley(values)))
            search.tell(trial, valley(values))
    return found


def test_the_same_seed_asks_for_the_same_candidates() -> None:
    here = space()
    first, again, other = (asked(here, seed, 36) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_it_begins_with_today_the_defaults_and_one_change_at_a_time() -> None:
    here = space(windowSeconds=60)
    first = [values for values, _ in asked(here, 0, 12)]
    assert [values[WINDOW] for values in first] == [60, *[30] * 11]
    assert first[1][PRESSURE] == 0.7
    assert {values[PRESSURE] for values in first[2:5]} == {0.3, 0.5, 0.85}


def test_it_finds_better_candidates_than_chance() -> None:
    here = space()

    def best(found: list[tuple[Values, Score]]) -> float:
        return min(one.gpu_hours for _, one in found if one.missed <= 0.03)

    searched = [best(asked(here, seed, 60)) for seed in range(5)]
    chance = []
    for seed in range(5):
        draw = random.Random(seed)
        drawn = [
            here.today | {PRESSURE: draw.uniform(0.15, 0.95), WINDOW: float(draw.randint(5, 180))}
            for _ in range(60)
        ]
        chance.append(best([(values, valley(values)) for values in drawn]))
    assert sum(searched) < sum(chance)


def test_importance_names_the_field_that_matters() -> None:
    search, here = Search(space(), 0), space()
    assert search.importances() == []
    for _ in range(10):
        for trial, values in [search.ask() for _ in range(GENERATION)]:
            search.tell(trial, valley(values))
    hours, _ = search.importances()
    assert max(hours, key=lambda path: hours[path]) == PRESSURE
    assert hours.keys() == {knob.path for knob in here.knobs}


def test_a_refused_candidate_is_passed_over() -> None:
    search = Search(space(), 0)
    trial, _ = search.ask()
    search.tell(trial, None)
    _, values = search.ask()
    assert values[PRESSURE] == 0.3 or values == space().today
