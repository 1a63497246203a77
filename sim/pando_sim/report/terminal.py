"""The runs as a table for the terminal."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from pando_sim.report.about import About
from pando_sim.report.digest import Digest, names
from pando_sim.report.measures import (
    GOODPUT,
    IN_TERMINAL,
    IN_TERMINAL_OF_SESSIONS,
    limit,
    seconds,
    shown,
    span,
)


def comparison_table(about: About, digests: Sequence[Digest]) -> Table:
    """A row per run; the best value of a column is bold, and has a star for displays without
    bold."""
    digests = list(digests)
    statistics = [one.statistics for one in digests]
    has_sessions = any(run.sessions for run in statistics)
    measures = shown(IN_TERMINAL_OF_SESSIONS if has_sessions else IN_TERMINAL, statistics)
    caption = (
        f"* best; simulated {span(max(one.duration_s for one in statistics))} in"
        f" {seconds(sum(one.wall_s for one in statistics))}"
    )
    if GOODPUT in measures:
        caption = (
            f"goodput: first token within {limit(about.slow_ttft_s)} and"
            f" {limit(about.slow_gap_s)} between tokens; {caption}"
        )
    table = Table(
        title=f"{about.trace_summary} on {about.pool_summary}", box=box.SIMPLE_HEAD, caption=caption
    )
    table.add_column("run", no_wrap=True)
    for measure in measures:
        table.add_column(measure.title.replace(" ", "\n"), justify="right", no_wrap=True)
    best = [measure.best(statistics) for measure in measures]
    for number, (name, run) in enumerate(zip(names(digests), statistics, strict=True)):
        cells = []
        for measure, winners in zip(measures, best, strict=True):
            value = measure.value(run)
            words = "-" if value is None else measure.words(value)
            cells.append(f"[bold]{words}*[/bold]" if number in winners else words)
        table.add_row(name, *cells)
    return table
