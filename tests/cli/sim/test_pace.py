"""Runs say how long they will still take, from what has been played of them."""

import pytest

from pando.sim import pace
from pando.sim.pace import MEASURED_S, Pace
from pando.sim.progress import bars
from pando.sim.work import Progress

BEGUN = 1_000.0


def test_runs_take_as_long_as_what_was_played_of_them_says() -> None:
    found = Pace(runs=4, length_s=1800.0, begun_s=BEGUN)
    found.played(0, 300.0)
    assert found.left_s(BEGUN + MEASURED_S - 1) is None
    found.played(1, 420.0)  # both together: a tenth of all
    assert found.left_s(BEGUN + 40.0) == 360.0
    found.played(0, 1790.0)
    found.played(1, 1810.0)  # it waits for its last answers
    found.played(0, 1800.0)
    assert found.left_s(BEGUN + 200.0) == 200.0


def test_nothing_is_told_before_anything_was_played() -> None:
    found = Pace(runs=1, length_s=60.0, begun_s=BEGUN)
    assert found.left_s(BEGUN + 100.0) is None
    found.played(0, 0.0)
    assert found.left_s(BEGUN + 100.0) is None


def test_where_no_bar_is_drawn_one_line_says_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "MEASURED_S", 0.0)
    with bars(["one", "other"], requests=None, length_s=1800.0) as show:
        for minutes in range(1, 30):
            show(0, Progress(ended=7 * minutes, at_s=60.0 * minutes))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("2 runs: about ")
    assert line.endswith(" left")
