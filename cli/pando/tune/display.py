"""What a person sees: one line on standard error while it runs, and the table at the end."""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from pando_sim.report.measures import percent, seconds, span
from pando_sim.tuning.choice import Point
from pando_sim.tuning.findings import DEFAULTS, TODAY, Findings, Shown
from pando_sim.tuning.parts import Parts
from pando_sim.tuning.score import Score
from pando_sim.tuning.words import called, contribution, important, sentences

FIELDS, LONGER_RUNS, JUDGED_RUNS = 10, 5, 3
"""Runs after the candidates, about: of changed fields, on the longer excerpt, and that judge."""
LEAST_WIDTH = 110  # characters per line when the output is not a terminal
NONE = "–"  # noqa: RUF001
_CLEAR = "\r\x1b[K"


class Display:
    """On a terminal one line that changes, elsewhere a line for each generation."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._is_live = self._console.is_terminal
        self._line = ""
        self._runs = 0
        self._search_began_s = 0.0

    def begins(self, what: str) -> None:
        self._say(f"Simulating {what}")

    def estimated(
        self, trials: int, outcomes: Sequence[Score], at_a_time: int, parts: Parts
    ) -> None:
        run_s = sum(one.wall_s for one in outcomes) / len(outcomes)
        runs = float(trials + FIELDS)
        tried = len(parts.tried.requests)
        if parts.has_excerpt:
            runs += LONGER_RUNS * len(parts.searched.requests) / tried
        runs += JUDGED_RUNS * len(parts.judged.requests) / tried
        about_s = runs * run_s / at_a_time
        self._search_began_s = time.monotonic()
        self._say(
            f"A run takes about {seconds(run_s)}: {trials} candidates, {at_a_time} at a time, and"
            f" judging, at most about {span(about_s)}; Ctrl-C ends it with what was found",
            keeps=True,
        )

    def ran(self) -> None:
        self._runs += 1
        if self._is_live:
            self._console.file.write(f"{_CLEAR}{self._line} · {self._runs} runs")
            self._console.file.flush()

    def tried(self, tried: int, trials: int, best: Point, today: Point) -> None:
        """After a generation."""
        passed_s = time.monotonic() - self._search_began_s
        left_s = passed_s / tried * (trials - tried)
        self._say(
            f"{tried} of {trials} candidates · best so far {_short(best.searched)}"
            f" (today's manifest {_short(today.searched)}) · about {span(left_s)} left"
        )

    def ends(self) -> None:
        if self._is_live:
            self._console.file.write(_CLEAR)
            self._console.file.flush()

    def _say(self, line: str, *, keeps: bool = False) -> None:
        self._line = line
        if not self._is_live:
            self._console.file.write(line + "\n")
        else:
            self._console.file.write(_CLEAR + line + ("\n" if keeps else ""))
        self._console.file.flush()


def _short(one: Score) -> str:
    return f"{one.gpu_hours_a_week:,.0f} GPU-hours a week, {percent(one.missed)} missed"


def show(findings: Findings, page: str) -> None:
    """Prints the result."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=LEAST_WIDTH)
    console.print(_table(findings))
    lines = ["", *sentences(findings)]
    lines += [f"  {contribution(one)}" for one in findings.contributions]
    if findings.importances:
        hours, missed = findings.importances
        lines.append(
            f"What mattered most for GPU-hours over all candidates: {important(hours)}; for"
            f" misses: {important(missed)}"
        )
    if findings.policy:
        lines.append(f"The routers' setting: policy: {findings.policy}")
    if findings.apply:
        lines += ["", findings.apply, ""]
    for line in [*lines, f"The report is {page}"]:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _table(findings: Findings) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("candidate")
    for column in (
        "searched: GPU-h/week",
        "missed",
        "judged: GPU-h/week",
        "missed",
        "TTFT p99",
        "gap p99",
    ):
        table.add_column(column, justify="right")
    has_worst = any(one.worst for one in findings.points)
    if has_worst:
        table.add_column("worst case", justify="right")
    on_front = [one.name for one in findings.points if one.is_on_front]
    names = dict.fromkeys([TODAY, DEFAULTS, findings.recommended, *on_front])
    for name in names:
        table.add_row(*_cells(findings.point(name), findings, has_worst))
    return table


def _cells(one: Shown, findings: Findings, has_worst: bool) -> list[str]:
    judged, mark = one.judged, " *" if one.name == findings.recommended else ""
    times = judged or one.searched
    cells = [
        called(one) + mark,
        f"{one.searched.gpu_hours_a_week:,.0f}",
        percent(one.searched.missed),
        f"{judged.gpu_hours_a_week:,.0f}" if judged else NONE,
        percent(judged.missed) if judged else NONE,
        seconds(times.ttft_p99_s) if times.ttft_p99_s is not None else NONE,
        seconds(times.gap_p99_s) if times.gap_p99_s is not None else NONE,
    ]
    if has_worst:
        cells.append(percent(one.varied[one.worst].missed) if one.worst else NONE)
    return cells
