"""Schedules: when their bounds apply, in their time zone."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_operator.resource.policy import ScalingPolicy, Schedule
from pando_operator.scaling import decide
from pando_operator.scaling.limits.schedule import bounds_at, holds_at
from tests.examples import examples
from tests.operator.scaling.pool_model import pool

OFFICE = Schedule(
    cron="0 8 * * 1-5",
    duration_seconds=10 * 3600,
    time_zone="Europe/Berlin",
    min_replicas=4,
    max_replicas=20,
)


def _at(text: str, zone: str = "Europe/Berlin") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("time", "holds"),
    [
        ("2026-11-20T07:59:59", False),  # a Friday
        ("2026-11-20T08:00:00", True),
        ("2026-11-20T17:59:59", True),
        ("2026-11-20T18:00:00", False),
        ("2026-11-21T12:00:00", False),
        ("2026-07-20T08:00:00", True),  # in summer time, by local time
    ],
)
def test_a_schedule_holds_from_its_cron_time_for_its_duration(time: str, holds: bool) -> None:
    assert holds_at(OFFICE, _at(time)) is holds


def test_it_spans_midnight_and_the_change_of_the_clocks() -> None:
    night = Schedule(cron="0 22 * * *", duration_seconds=8 * 3600, time_zone="Europe/Berlin")
    assert holds_at(night, _at("2026-10-25T02:30:00"))
    assert holds_at(night, _at("2026-10-25T04:59:00"))  # one hour occurred twice
    assert not holds_at(night, _at("2026-10-25T05:00:00"))


@settings(max_examples=examples(60))
@given(
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    weekday=st.integers(0, 6),
    duration_min=st.integers(1, 3 * 24 * 60),
    offset_min=st.integers(0, 14 * 24 * 60),
)
def test_it_holds_when_one_of_the_last_minutes_began_it(
    minute: int, hour: int, weekday: int, duration_min: int, offset_min: int
) -> None:
    schedule = Schedule(cron=f"{minute} {hour} * * {weekday}", duration_seconds=60 * duration_min)
    now = datetime(2026, 3, 1, tzinfo=ZoneInfo("UTC")) + timedelta(minutes=offset_min)
    begins = [now - timedelta(minutes=back) for back in range(duration_min)]
    expected = any(
        (each.minute, each.hour, each.isoweekday() % 7) == (minute, hour, weekday)
        for each in begins
    )
    assert holds_at(schedule, now.timestamp()) is expected


def test_the_highest_bound_of_those_that_hold_counts() -> None:
    other = Schedule(
        cron="0 9 * * *", duration_seconds=3600, time_zone="Europe/Berlin", min_replicas=6
    )
    policy = ScalingPolicy(min_replicas=1, max_replicas=5, schedules=(OFFICE, other))
    assert bounds_at(policy, _at("2026-11-20T07:00:00"))[:2] == (1, 5)
    assert bounds_at(policy, _at("2026-11-20T08:30:00"))[:2] == (4, 20)
    assert bounds_at(policy, _at("2026-11-20T09:30:00"))[:2] == (6, 20)
    assert bounds_at(policy, _at("2026-11-21T09:30:00"))[:2] == (5, 5), "the most counts"


def test_a_decision_names_the_schedule() -> None:
    policy = ScalingPolicy(max_replicas=5, schedules=(OFFICE,))
    decision = decide(pool(0.5), policy, _at("2026-11-20T08:00:30"))
    assert decision.desired == 4
    assert decision.reason.endswith("minReplicas is 4 by schedule '0 8 * * 1-5' Europe/Berlin")
