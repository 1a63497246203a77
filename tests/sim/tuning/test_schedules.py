"""Schedules raise the minimum in the hours that are busy every day, and not in others."""

import asyncio
import random
from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_operator.resource.parse import parse
from pando_operator.scaling.limits.schedule import holds_at
from pando_sim.day_clock import DayClock
from pando_sim.request import Request
from pando_sim.traces.prompts import UniquePrompt
from pando_sim.tuning.parts import divided
from pando_sim.tuning.schedules import (
    BUSY,
    DAY_MIN,
    EARLY,
    LEAST_GAP_MIN,
    MOST_ENTRIES,
    QUARTERS,
    REPLICAS,
    DayLoad,
    Schedules,
    schedule_knobs,
    why_none,
)
from pando_sim.tuning.score import Score
from pando_sim.tuning.space import Space
from pando_sim.tuning.watch import run
from tests.sim.tuning.manifests import document
from tests.sim.tuning.test_watch import GOAL, SPEC

UTC = ZoneInfo("UTC")
BEGAN = datetime(2026, 11, 23, tzinfo=UTC)  # a Monday
NINE_S = 9 * 3600.0


def days(*bursts_s: float, calm: int = 200, burst: int = 400) -> list[Request]:
    """As many days as there are bursts; each burst is of 100 s, at that second of its day."""
    draw, times = random.Random(0), list[float]()
    for number, at_s in enumerate(bursts_s):
        midnight_s = number * 86_400.0
        times += [midnight_s + draw.uniform(0, 86_400) for _ in range(calm)]
        times += [midnight_s + at_s + 0.25 * place for place in range(burst)]
    return [
        Request(number=number, at_s=at_s, prompt=UniquePrompt(number, 4000), output_tokens=30)
        for number, at_s in enumerate(sorted(times))
    ]


def load(requests: list[Request], zone: str = "UTC") -> Schedules:
    return Schedules(DayLoad.of(requests, BEGAN.timestamp(), ZoneInfo(zone)), zone)


def test_a_burst_of_every_day_gets_a_schedule_that_begins_before_it() -> None:
    (entry,) = load(days(NINE_S, NINE_S + 50, NINE_S)).made({REPLICAS: 4.0, EARLY: 7.0}) or []
    assert entry == {
        "cron": "53 8 * * *",
        "durationSeconds": (15 + 7) * 60,
        "timeZone": "UTC",
        "minReplicas": 4,
    }


def test_a_burst_of_one_day_is_none_of_the_hour() -> None:
    here = load(days(NINE_S, NINE_S, 15 * 3600.0)).load
    assert here.busy(0.6, 0) == [(9 * 60, 15)]
    other = load(days(NINE_S, 15 * 3600.0)).load
    assert max(other.shares[36], other.shares[60]) < 1.0, "two days that have none in common"


def test_hours_are_those_of_the_time_zone() -> None:
    (entry,) = load(days(NINE_S, NINE_S), "Europe/Berlin").made({REPLICAS: 2.0, EARLY: 0.0}) or []
    assert (entry["cron"], entry["timeZone"]) == ("0 10 * * *", "Europe/Berlin")


def test_without_replicas_there_is_no_schedule() -> None:
    assert load(days(NINE_S, NINE_S)).made({REPLICAS: None, BUSY: 0.5, EARLY: 5.0}) is None


def test_busy_hours_never_have_fewer_than_others() -> None:
    values = {REPLICAS: 3.0, "scaling.minReplicas": 5.0}
    assert [one["minReplicas"] for one in load(days(NINE_S)).made(values) or []] == [5]


@given(
    shares=st.lists(st.sampled_from((0.1, 0.5, 1.0)), min_size=QUARTERS, max_size=QUARTERS),
    share=st.sampled_from((0.3, 0.7, 1.0)),
    early=st.integers(0, 60),
)
def test_the_operator_takes_the_entries_and_they_hold_whenever_it_is_busy(
    shares: list[float], share: float, early: int
) -> None:
    shares[7] = 1.0  # one quarter is the busiest
    made = Schedules(DayLoad(tuple(shares)), "UTC").made(
        {REPLICAS: 3.0, BUSY: share, EARLY: float(early)}
    )
    schedules = parse(document(schedules=made)).spec.scaling.schedules
    assert 1 <= len(schedules) <= MOST_ENTRIES
    noon = BEGAN + timedelta(days=2)
    for quarter, one in enumerate(shares):
        at_s = (noon + timedelta(minutes=15 * quarter)).timestamp()
        moments = (at_s - 60 * early, at_s + 14 * 60) if one >= share else ()
        assert all(any(holds_at(each, moment) for each in schedules) for moment in moments)
    spans = sorted(DayLoad(tuple(shares)).busy(share, early))
    begins = [begin for begin, _ in spans[1:]] + [spans[0][0] + DAY_MIN]
    gaps = [after - begin - length for (begin, length), after in zip(spans, begins, strict=True)]
    assert min(gaps) >= LEAST_GAP_MIN or spans == [(0, DAY_MIN)]


def test_a_time_that_is_always_busy_is_all_of_the_day() -> None:
    assert DayLoad((1.0,) * QUARTERS).busy(0.5, 10) == [(0, DAY_MIN)]
    almost = (1.0,) * (QUARTERS - 1) + (0.1,)
    assert DayLoad(almost).busy(0.5, 0) == [(0, DAY_MIN)], "a gap of a quarter of an hour"


@pytest.mark.parametrize(
    ("seconds", "facts", "why"),
    [
        (2 * 86_400, {}, ""),
        (86_400, {}, "lasts 24 h, and only two days can show that hours repeat"),
        (86_400, {"is_asked": True}, ""),
        (9 * 86_400, {"has_hours": False}, "does not say at which time of the day"),
        (3600, {"has_hours": False, "is_asked": True}, "does not say at which time of the day"),
        (9 * 86_400, {"has_own": True}, "has schedules of its own"),
    ],
)
def test_why_there_are_none(seconds: float, facts: dict[str, bool], why: str) -> None:
    given_facts = {"has_hours": True, "has_own": False, "is_asked": False} | facts
    said = why_none(seconds, **given_facts)
    assert why in said
    assert bool(why) == bool(said)


def test_the_days_that_judge_agree_with_a_schedule_of_the_days_that_were_searched() -> None:
    """The load jumps within a minute, a replica starts in two."""
    trace = days(NINE_S, NINE_S + 40, NINE_S + 20)
    parts = divided(trace, seed=0, most=60)
    made = load(parts.whole)
    space = Space(document(), "cache_aware", schedule_knobs(1, 6, 120.0), [made])
    clock = DayClock(unix_s=(BEGAN.timestamp(),))
    spec = replace(SPEC, worker=replace(SPEC.worker, start_s=120.0), clock=clock)

    def judged(replicas: float | None) -> Score:
        pool = space.candidate(space.today | {REPLICAS: replicas}).pool
        return asyncio.run(run(spec, pool, parts.judged, GOAL))

    without, with_it = judged(None), judged(4.0)
    assert without.missed > 0.3
    assert with_it.missed < 0.02
    assert with_it.gpu_hours < 1.1 * without.gpu_hours
