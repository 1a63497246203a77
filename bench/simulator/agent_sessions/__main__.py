"""Simulates the cells that are missing, prints the table, and writes the plot."""

from itertools import product
from pathlib import Path

import click

from bench.simulator.agent_sessions.plays import COUNTS, RULES, Cell, Play, Results, play
from bench.simulator.agent_sessions.plot import draw
from bench.simulator.side_by_side import side_by_side


@click.command()
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="agents' sessions, such as agent_sessions.jsonl.gz",
)
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option("--rule", "rules", multiple=True, type=click.Choice(RULES), help="default: all")
@click.option("--sessions", "counts", multiple=True, type=int, help="at once; default: all")
@click.option("--replicas", default=4, show_default=True)
@click.option("--capacity-tokens", default=1_500_000, show_default=True, help="of a replica")
@click.option("--hours", default=0.5, show_default=True)
def main(
    trace: Path,
    output: Path,
    rules: tuple[str, ...],
    counts: tuple[int, ...],
    replicas: int,
    capacity_tokens: int,
    hours: float,
) -> None:
    """Simulates what OUTPUT/results.jsonl does not contain yet, and shows all of it."""
    results = Results(output / "results.jsonl")
    cells = [
        Cell(
            rule=rule,
            sessions=count,
            replicas=replicas,
            capacity_tokens=capacity_tokens,
            hours=hours,
        )
        for rule, count in product(rules or RULES, counts or COUNTS)
    ]
    missing = [(cell, trace) for cell in cells if cell not in results.found]
    for one in side_by_side(play, missing):
        results.add(one)
    plays = [results.found[cell] for cell in cells]
    draw(plays, output / "agent-sessions.svg")
    click.echo(_table(plays))


def _table(plays: list[Play]) -> str:
    rows = [
        "| rule | sessions at once | calls/h | sessions/h | hit rate (ceiling) | first TTFT p99"
        " | later TTFT p50 | p99 | longest | computed twice | refused |",
        "|---|" + 10 * "---:|",
    ]
    rows += [
        f"| `{one.cell.rule}` | {one.cell.sessions} | {one.calls_per_hour:,.0f}"
        f" | {one.sessions_per_hour:,.0f} | {one.hit_rate:.3f} ({one.ceiling:.3f})"
        f" | {one.first_p99_s:,.0f} s | {one.later_p50_s:,.2f} s | {one.later_p99_s:,.0f} s"
        f" | {one.longest_s:,.0f} s | {one.recomputed:.1%} | {one.lost:,} |"
        for one in plays
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    main()
