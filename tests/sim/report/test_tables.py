"""The comparison: the best run by each measure, and the format of values."""

import pytest
from msgspec.structs import replace
from rich.console import Console

from pando_sim.report import comparison_table
from pando_sim.report.digest import names
from pando_sim.report.measures import GOODPUT, LOST, TTFT_P99, limit, seconds, span
from pando_sim.report.page.verdict import verdict
from tests.sim.report.made_runs import ABOUT, made_digest

FAST = made_digest("fast", slowness=0.5, requests=1000)
SLOW = made_digest("slow", slowness=3.0, requests=1000)


def shown(width: int = 110) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(comparison_table(ABOUT, [FAST, SLOW]))
    return capture.get()


def test_the_best_of_a_column_has_a_star() -> None:
    rows = {line.split()[0]: line for line in shown().splitlines() if line.split()}
    assert rows["fast"].count("*") >= 4
    assert "0*" in rows["fast"].split()
    assert rows["slow"].count("*") <= 1  # the load happens to be more even


def test_the_table_fits_a_terminal_of_100_columns() -> None:
    assert "…" not in shown(100)


def test_nobody_is_best_where_all_read_alike() -> None:
    runs = [FAST.statistics, FAST.statistics]
    assert not GOODPUT.best(runs)
    assert LOST.best([FAST.statistics, SLOW.statistics]) == {0}
    assert TTFT_P99.best([SLOW.statistics, FAST.statistics, FAST.statistics]) == {1, 2}


def test_runs_are_named_by_their_differences() -> None:
    scaled = [made_digest("p", requests=100, scaling=name) for name in ("pando", "hpa")]
    assert names([FAST, SLOW]) == ["fast", "slow"]
    assert names(scaled) == ["pando", "hpa"]
    assert names([FAST, scaled[0]]) == ["fast · none", "p · pando"]
    assert names([FAST]) == ["fast"]
    ruled = [replace(FAST, session_rule=rule) for rule in ("lpm", "bound-lpm")]
    assert names(ruled) == ["lpm", "bound-lpm"]


def test_the_verdict_names_the_best_and_the_next() -> None:
    said = verdict(ABOUT, [FAST, SLOW])
    assert any("in time: fast with" in sentence and "next is slow" in sentence for sentence in said)
    alone = " ".join(verdict(ABOUT, [FAST]))
    assert "1,000 requests were in time" in alone
    assert "first token within 2 s, and 50 ms between" in alone


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0 s"), (0.00042, "0.420 ms"), (0.085, "85.0 ms"), (1.237, "1.24 s"), (1300, "22 min")],
)
def test_times_have_three_digits(value: float, words: str) -> None:
    assert seconds(value) == words


def test_longer_times_are_in_minutes_and_hours() -> None:
    assert [span(s) for s in (45, 600, 7800, 7200)] == ["45 s", "10 min", "2 h 10 min", "2 h"]
    assert [limit(s) for s in (2.0, 0.05, 1.5)] == ["2 s", "50 ms", "1.5 s"]
