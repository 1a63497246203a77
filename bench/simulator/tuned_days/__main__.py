"""Searches each load, and prints what came of it beside the defaults."""

from dataclasses import replace
from pathlib import Path

import click
import msgspec

from bench.simulator.scaling_days import loads
from bench.simulator.scaling_days.loads import KEPT_SHARE, SLICES
from bench.simulator.side_by_side import side_by_side
from bench.simulator.tuned_days.grid import best_of
from bench.simulator.tuned_days.office import START_S, office
from bench.simulator.tuned_days.searches import (
    GOAL,
    PRESSURE,
    Case,
    played,
    searched,
    through_a_day,
)
from pando_sim.tuning.findings import DEFAULTS, Findings
from pando_sim.tuning.parts import Stage
from pando_sim.tuning.score import Score

PRESSURES = (0.15, 0.25, 0.4, 0.55, 0.7)
"""The defaults with another target each: what they cost for how many misses."""


WITHOUT_SCHEDULES = (
    "target",
    "minReplicas",
    "tolerance",
    "windowSeconds",
    "behavior.scaleUp.stabilizationWindowSeconds",
    "behavior.scaleDown.stabilizationWindowSeconds",
    "panic",
)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A load's day. Scores are of the part that judges, unless it is said."""

    load: str
    requests: int
    recommended: Score
    defaults: Score
    by_pressure: list[Score]
    seconds: float | None  # of the search; None if it was interrupted
    cpu_s: float | None
    grid: Score | None = None  # where candidates are tried, like the next one
    grid_size: int = 0
    found: Score | None = None  # the cheapest candidate of the search that keeps the times


@click.command()
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option(
    "--conversation",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Mooncake's conversation_trace.jsonl, gzipped; without it only the synthetic load is run",
)
@click.option("--answers/--no-answers", default=True, help="also run the synthetic load")
@click.option(
    "--slices",
    type=click.IntRange(1),
    default=SLICES,
    show_default=True,
    help="a replica that serves conversations is such a part of a GPU",
)
@click.option(
    "--share",
    type=click.FloatRange(0, 1),
    default=KEPT_SHARE,
    show_default=True,
    help="of the conversations; 0.74 are 100,000 requests in 24 hours",
)
@click.option("--hours", type=float, default=24.0, show_default=True, help="of the day")
@click.option(
    "--office",
    "office_days",
    type=int,
    default=0,
    help="also days of an office, with and without schedules; a third of them judges",
)
@click.option("--plain/--no-plain", default=True, help="also search the office without schedules")
@click.option(
    "--as-good-as-today", is_flag=True, help="ask for no more misses than the defaults have"
)
@click.option("--trials", type=int, default=60, show_default=True)
@click.option("--excerpt", type=int, default=4000, show_default=True)
@click.option("--grid", type=int, default=0, help="candidates of the grid, at most 1,920; 0: none")
def main(
    output: Path,
    conversation: Path | None,
    answers: bool,
    slices: int,
    share: float,
    hours: float,
    office_days: int,
    plain: bool,
    as_good_as_today: bool,
    trials: int,
    excerpt: int,
    grid: int,
) -> None:
    """Searches that were interrupted go on where they were."""
    output.mkdir(parents=True, exist_ok=True)
    every = [loads.answers(1, output)] if answers else []
    if conversation is not None:
        every.append(loads.conversation(1, conversation, output, slices=slices, share=share))
    cases = []
    for load in every:
        folder = (output / f"{load.name}-{hours:g}").absolute()
        cases.append(Case(load, through_a_day(hours), trials, excerpt, folder))
    if office_days:
        cases += _office(office_days, trials, excerpt, output.absolute())[0 if plain else 1 :]
    rows = []
    for case in [replace(one, as_today=as_good_as_today) for one in cases]:
        rows.append(_row(case, grid))
        (output / "rows.json").write_bytes(msgspec.json.format(msgspec.json.encode(rows)))
        click.echo(_line(rows[-1]))


def _office(days: int, trials: int, excerpt: int, output: Path) -> list[Case]:
    load = office(days, output)
    with_them = replace(load, name=f"{load.name}, with schedules")
    start: dict[str, object] = {"start-seconds": START_S}
    return [
        Case(load, start, trials, excerpt, output / "office", WITHOUT_SCHEDULES),
        Case(with_them, start, trials, excerpt, output / "office-schedules"),
    ]


def _row(case: Case, grid: int) -> Row:
    findings, times = searched(case)
    seconds, cpu_s = times or (None, None)
    jobs = [(case, {PRESSURE: value}, Stage.JUDGED) for value in PRESSURES]
    best, size = best_of(case, grid) if grid else (None, 0)
    return Row(
        load=case.load.name,
        requests=findings.about.judged_requests,
        recommended=_judged(findings, findings.recommended),
        defaults=_judged(findings, DEFAULTS),
        by_pressure=list(side_by_side(played, jobs)),
        seconds=seconds,
        cpu_s=cpu_s,
        grid=best,
        grid_size=size,
        found=_cheapest(findings),
    )


def _cheapest(findings: Findings) -> Score | None:
    """Of the candidates that keep the times, on the requests on which they were tried."""
    tried = [one.tried or one.searched for one in findings.points]
    return min(
        (one for one in tried if one.keeps(GOAL)), key=lambda one: one.gpu_hours, default=None
    )


def _judged(findings: Findings, name: str) -> Score:
    score = findings.point(name).judged
    assert score is not None, "it was not interrupted"
    return score


def at_equal_misses(row: Row) -> float | None:
    """GPU-hours of the cheapest of the defaults' targets that has no more misses than the
    recommended candidate; None if none has so few."""
    few = [one for one in (row.defaults, *row.by_pressure) if one.missed <= row.recommended.missed]
    return min((one.gpu_hours for one in few), default=None)


def _line(row: Row) -> str:
    """A line of the table in docs/benchmarks/tuning.md."""
    equal, best, plain = at_equal_misses(row), row.recommended, row.defaults
    saved = "none has so few" if equal is None else f"{1 - best.gpu_hours / equal:.1%} fewer"
    cells = [
        row.load,
        f"{row.requests:,}",
        f"{plain.gpu_hours:.1f}, {plain.missed:.2%}",
        f"{best.gpu_hours:.1f}, {best.missed:.2%}",
        "–" if equal is None else f"{equal:.1f}",  # noqa: RUF001
        saved,
        _minutes(row),
    ]
    if row.grid is not None and row.found is not None:
        more = row.found.gpu_hours / row.grid.gpu_hours - 1
        cells.append(f"{row.found.gpu_hours:.2f} against {row.grid.gpu_hours:.2f}: {more:+.1%}")
    return f"| {' | '.join(cells)} |"


def _minutes(row: Row) -> str:
    if row.seconds is None or row.cpu_s is None:
        return "it was interrupted"
    return f"{row.seconds / 60:.1f} min, {row.cpu_s / 60:.1f}"


if __name__ == "__main__":
    main()
