"""The front, the recommended point, and when today's manifest is kept."""

from hypothesis import given
from hypothesis import strategies as st

from pando_sim.tuning.choice import (
    DEAREST,
    Point,
    bounds_of,
    front,
    in_order,
    is_on_cliff,
    most_missed,
    next_judged,
    next_ones,
    no_worse,
    preferred,
    recommended,
)
from pando_sim.tuning.goal import Goal
from tests.sim.tuning.manifests import GOAL, outcome


def point(name: str, gpu_hours: float, missed: float, **fields: float) -> Point:
    return Point(name, {}, outcome(gpu_hours, missed, **fields))


numbers = st.integers(1, 8)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30))
def test_the_front_has_exactly_what_no_other_point_beats(pairs: list[tuple[int, int]]) -> None:
    points = [point(str(n), hours, missed / 10) for n, (hours, missed) in enumerate(pairs)]
    found = {(one.searched.gpu_hours, one.searched.missed) for one in front(points)}
    unbeaten = {
        (one.searched.gpu_hours, one.searched.missed)
        for one in points
        if not any(other.searched.beats(one.searched) for other in points)
    }
    assert found == unbeaten
    assert len(front(points)) == len(found), "equal ones stand there once"


def test_the_cheapest_that_keeps_the_times_is_recommended() -> None:
    points = [point("a", 10, 0.004), point("b", 8, 0.009), point("c", 6, 0.02)]
    assert [one.name for one in in_order(points, GOAL)] == ["b", "a"]


def test_times_are_kept_each_for_itself() -> None:
    both = point("both", 5, 0.016, late=0.008, slow=0.008)
    assert in_order([both, point("a", 9, 0.002)], GOAL)[0] is both


def test_if_none_keeps_them_the_one_with_the_fewest_misses_is() -> None:
    points = [point("a", 10, 0.04), point("b", 8, 0.09)]
    assert [one.name for one in in_order(points, GOAL)] == ["a"]


def test_no_run_is_lost_that_could_be_recommended() -> None:
    """That keeps the times for less than the cheapest, or has the fewest misses."""
    today = point("today", 20, 0.05)
    kept = point("kept", 8, 0.009)
    bounds = bounds_of([today, kept, point("a", 6, 0.02)], today, GOAL)
    assert not bounds.is_lost(7.9, 0.0199), "each time may be missed by 1 %"
    assert not bounds.is_lost(8 * DEAREST, 0.0)
    assert not bounds.is_lost(5.9, 0.05)
    assert bounds.is_lost(8 * DEAREST + 0.1, 0.0)
    assert bounds.is_lost(5.9, 0.051), "today's manifest misses less"
    assert bounds.is_lost(8.1, 0.009), "one costs less for no more misses"
    assert most_missed(point("today", 20, 0.0), GOAL) == 0.02


def test_while_none_keeps_the_times_nothing_is_too_dear() -> None:
    today = point("today", 20, 0.05)
    assert not bounds_of([today], today, GOAL).is_lost(1e6, 0.04)


def test_with_a_budget_a_run_is_lost_that_costs_far_more_than_it() -> None:
    goal = Goal(ttft_s=2.0, gap_s=0.05, budget=9.0)
    today = point("today", 10, 0.05)
    bounds = bounds_of([today], today, goal)
    least = today.searched.hours / 168 * 9 * DEAREST
    assert not bounds.is_lost(least * 0.99, 0.04)
    assert bounds.is_lost(least * 1.01, 0.0)
    assert not bounds_of([], today, goal).is_lost(least * 0.99, 0.1)


def test_as_good_as_today_is_what_misses_no_more() -> None:
    goal = Goal(ttft_s=2.0, gap_s=0.05, as_today=True)
    both = {"late": 0.04, "slow": 0.03, "allowed": 0.05}
    points = [point("a", 9, 0.01, **both), point("b", 8, 0.05, **both), point("c", 6, 0.06, **both)]
    assert [one.name for one in in_order(points, goal)] == ["b", "a"]
    assert not points[2].searched.keeps(goal)
    today = point("today", 10, 0.05, **both)
    bounds = bounds_of([today, *points], today, goal)
    assert not bounds.is_lost(5.9, 0.099), "so that it says how far it is from keeping it"
    assert bounds.is_lost(5.9, 0.101)
    assert no_worse(outcome(8, 0.05, **both), points[1].searched, goal)
    assert not no_worse(outcome(8, 0.051, **both), points[1].searched, goal)


def test_a_budget_buys_the_fewest_misses() -> None:
    goal = Goal(ttft_s=2.0, gap_s=0.05, budget=9.0)
    points = [point("a", 10, 0.004), point("b", 8, 0.009), point("c", 6, 0.02)]
    assert [one.name for one in in_order(points, goal)] == ["b", "c"]
    assert in_order(points[:1], goal) == points[:1], "the cheapest, if it pays for none"


def test_a_lost_run_is_on_no_front() -> None:
    lost = point("lost", 1, 0.001, ended_at=0.2)
    kept = point("a", 10, 0.004)
    assert front([lost, kept]) == [kept]
    assert in_order([lost, kept], GOAL) == [kept]


def test_a_point_on_a_cliff_is_not_recommended() -> None:
    today, steep, flat = point("today", 10, 0.004), point("a", 5, 0.009), point("b", 6, 0.009)
    today.varied = {"up": outcome(12, 0.01)}
    steep.varied = {"up": outcome(7, 0.2), "down": outcome(4, 0.0)}
    flat.varied = {"up": outcome(8, 0.015)}
    assert is_on_cliff(steep, today)
    assert not is_on_cliff(flat, today), "twice what is allowed is no cliff"
    assert recommended([steep, flat], today) is flat
    assert recommended([steep], today) is steep
    today.varied = {"up": outcome(12, 0.3)}
    assert recommended([steep, flat], today) is steep, "today's worst case is worse"


def test_what_was_found_stays_unless_the_judged_part_prefers_something_else() -> None:
    today, found, single = point("today", 10, 0.004), point("a", 5, 0.009), point("b", 6, 0.009)

    def chosen(*judged: tuple[float, float]) -> str:
        for one, (hours, missed) in zip((today, found, single), judged, strict=True):
            one.judged = outcome(hours, missed)
        return preferred(found, [today, single], today, GOAL).name

    assert chosen((10, 0.004), (5, 0.009), (6, 0.009)) == "a"
    assert chosen((10, 0.004), (5, 0.02), (6, 0.02)) == "today", "only it keeps the times"
    assert chosen((10, 0.004), (5, 0.02), (6, 0.009)) == "b", "it keeps them for less than today's"
    assert chosen((10, 0.004), (5, 0.009), (4, 0.0095)) == "b", "it keeps them for less"
    assert chosen((4, 0.015), (5, 0.02), (6, 0.02)) == "today", "it costs less and misses less"
    assert chosen((4, 0.03), (5, 0.02), (6, 0.015)) == "a", "no other one is better in both"
    single.varied["loss"] = outcome(6, 0.5)
    assert chosen((10, 0.004), (5, 0.02), (6, 0.009)) == "today", "the other is on a cliff"


def test_what_was_not_judged_is_not_preferred() -> None:
    today, found = point("today", 10, 0.004), point("a", 5, 0.009)
    assert preferred(found, [today], today, GOAL) is found


def judged_in_turn(*true: tuple[float, float], searched: tuple[float, ...], goal: Goal) -> str:
    """Names of the points that are judged, and behind them the one that is recommended.

    `true`: on the part that judges, for today's manifest and for finalists from the best on;
    `searched`: GPU-hours on the part that was searched.
    """
    names = ("today", "a", "b", "c", "d")
    points = [point(name, hours, 0.009) for name, hours in zip(names, searched, strict=False)]
    today, best = points[:2]
    scores = {one.name: outcome(*score) for one, score in zip(points, true, strict=True)}
    judged = [best, today]
    for one in judged:
        one.judged = scores[one.name]
    while (more := next_judged(points[1:], best, judged[1:], today, goal)) is not None:
        more.judged = scores[more.name]
        judged.append(more)
    names_judged = " ".join(one.name for one in judged)
    return f"{names_judged}: {preferred(best, judged[1:], today, goal).name}"


def test_dearer_finalists_are_judged_until_one_keeps_what_the_best_misses() -> None:
    costs = (10, 5, 6, 6.2, 7)
    bad, good = 0.015, 0.008
    kept = judged_in_turn((10, 0), (5, good), (6, 0), (6, 0), (7, 0), searched=costs, goal=GOAL)
    assert kept == "a today: a", "the best one keeps it"
    second = judged_in_turn((10, 0), (5, bad), (6, good), (6, 0), (7, 0), searched=costs, goal=GOAL)
    assert second == "a today b: b"
    later = judged_in_turn(
        (10, 0), (5, bad), (6, bad), (6, 0), (7, good), searched=costs, goal=GOAL
    )
    assert later == "a today b d: d", "c is as good as b"
    dear = (10, 5, 11, 12, 13)
    today = judged_in_turn((10, 0), (5, bad), (11, 0), (12, 0), (13, 0), searched=dear, goal=GOAL)
    assert today == "a today: today", "it keeps it for less than the others cost"
    none = judged_in_turn(
        (10, bad), (5, bad), (6, bad), (6, 0), (7, bad), searched=costs, goal=GOAL
    )
    assert none == "a today b d: a"


def test_a_field_that_changes_nothing_is_found() -> None:
    best = outcome(100, 0.008)
    assert no_worse(outcome(100.4, 0.0095), best, GOAL)
    assert not no_worse(outcome(101, 0.005), best, GOAL)
    assert not no_worse(outcome(99, 0.02), best, GOAL)
    assert not no_worse(outcome(90, 0.001, ended_at=0.5), best, GOAL)


def played_longer(tried: list[Point], true: dict[str, float], goal: Goal) -> list[str]:
    """The names of those that are played on the longer excerpt, where they miss `true`."""
    played: list[Point] = []
    while more := next_ones(tried, played, goal):
        played += [point(one.name, one.searched.gpu_hours, true[one.name]) for one in more]
    return [one.name for one in played]


TRIED = [point(name, 10 - place, 0.001 * 2**place) for place, name in enumerate("abcdefg")]
"""The front has g first, the cheapest; d is the cheapest that keeps the times, by the excerpt."""


def test_where_the_excerpt_is_right_the_best_and_its_neighbours_are_played_longer() -> None:
    true = {one.name: one.searched.missed for one in TRIED}
    assert played_longer(TRIED, true, GOAL) == ["d", "c", "f", "e"]


def test_where_the_excerpt_is_too_hard_cheaper_ones_are_played_until_one_fails() -> None:
    true = {one.name: one.searched.missed / 8 for one in TRIED}
    assert played_longer(TRIED, true, GOAL) == ["d", "c", "f", "e", "g"]


def test_where_the_excerpt_is_too_easy_dearer_ones_are_played_until_one_holds() -> None:
    true = {one.name: one.searched.missed * 3 for one in TRIED}
    assert played_longer(TRIED, true, GOAL) == ["d", "c", "b", "a"]


def test_where_the_excerpt_is_too_easy_the_next_dearer_one_need_not_miss_less_there() -> None:
    tried = [point("a", 5, 0.008), point("b", 5.1, 0.008), point("c", 6, 0.009), point("d", 9, 0)]
    assert played_longer(tried, {"a": 0.02, "b": 0.02, "c": 0.007, "d": 0.0}, GOAL) == ["a", "c"]


def test_with_a_budget_what_it_pays_for_is_played_longer() -> None:
    goal = Goal(ttft_s=2.0, gap_s=0.05, budget=6.5)
    true = {one.name: one.searched.missed for one in TRIED}
    assert played_longer(TRIED, true, goal) == ["e", "d"]
    dear = [point(one.name, one.searched.gpu_hours * 10, one.searched.missed) for one in TRIED]
    assert played_longer(dear, true, goal) == ["g", "f"], "it pays for none"
