"""The runs as a table for the terminal."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from pando_sim.report.about import About
from pando_sim.report.digest import Digest, names
from pando_sim.report.measures import IN_TERMINAL, limit, seconds, span


def comparison_table(about: About, digests: Sequence[Digest]) -> Table:
    """A row per run; the best value of a column is bold, and has a star for displays without
    bold."""
    digests = list(digests)
    statistics = [one.statistics for one in digests]
    table = Table(
        title=f"{about.trace_summary} on {about.pool_summary}",
        box=box.SIMPLE_HEAD,
        caption=f"goodput: first token within {limit(about.slow_ttft_s)} and"
        f" {limit(about.slow_gap_s)} between tokens; * best; simulated"
        f" {span(max(one.duration_s for one in statistics))} in"
        f" {seconds(sum(one.wall_s for one in statistics))}",
    )
    table.add_column("run", no_wrap=True)
    shown = [m for m in IN_TERMINAL if any(m.value(run) is not None for run in statistics)]
    for measure in shown:
        table.add_column(measure.title.replace(" ", "\n"), justify="right", no_wrap=True)
    best = [measure.best(statistics) for measure in shown]
    for number, (name, run) in enumerate(zip(names(digests), statistics, strict=True)):
        cells = []
        for measure, winners in zip(shown, best, strict=True):
            value = measure.value(run)
            words = "-" if value is None else measure.words(value)
            cells.append(f"[bold]{words}*[/bold]" if number in winners else words)
        table.add_row(name, *cells)
    return table
