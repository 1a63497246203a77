"""The time of day in a run, which jumps from one stretch of a trace to the next."""

from datetime import UTC, datetime

from pando_sim.day_clock import SINCE_MONDAY, DayClock


def test_without_times_of_day_a_run_begins_on_a_monday_at_midnight() -> None:
    begin = datetime.fromtimestamp(SINCE_MONDAY.unix_at(0.0), UTC)
    assert (begin.weekday(), begin.hour, begin.minute) == (0, 0, 0)
    assert SINCE_MONDAY.unix_at(90.0) == SINCE_MONDAY.unix_at(0.0) + 90.0


def test_it_jumps_where_a_stretch_begins_and_runs_on_from_there() -> None:
    clock = DayClock((0.0, 100.0, 160.0), (1000.0, 50_000.0, 2000.0))
    moments = (0.0, 99.0, 100.0, 159.0, 160.0, 500.0)
    assert [clock.unix_at(at_s) for at_s in moments] == [1000, 1099, 50_000, 50_059, 2000, 2340]


def test_faster_arrivals_have_faster_hours() -> None:
    clock = DayClock((0.0, 50.0), (1000.0, 5000.0), speed=2.0)
    assert [clock.unix_at(at_s) for at_s in (10.0, 60.0)] == [1020.0, 5020.0]
