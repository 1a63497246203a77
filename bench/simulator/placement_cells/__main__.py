"""Simulates the cells that are missing, and writes the tables and the plot."""

from itertools import product
from pathlib import Path

import click

from bench.simulator.placement_cells.cells import CELLS, FILES, SHARES, SMALL_CELLS, Cell
from bench.simulator.placement_cells.plot import draw
from bench.simulator.placement_cells.results import Play, Results
from bench.simulator.placement_cells.simulated import run
from bench.simulator.placement_cells.table import tables
from bench.simulator.side_by_side import side_by_side


@click.command()
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option(
    "--traces",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"folder of {', '.join(FILES.values())}; without it only the small trace is played",
)
@click.option("--only", default="", help="only cells with this in their names")
@click.option("--policy", multiple=True, help="only these policies")
def main(output: Path, traces: Path | None, only: str, policy: tuple[str, ...]) -> None:
    """Simulates what OUTPUT/results.jsonl does not contain yet."""
    results = Results(output / "results.jsonl")
    cells = CELLS if traces is not None else SMALL_CELLS
    missing = [
        (cell, name, share, traces)
        for cell, share in product(cells, SHARES)
        for name in cell.policies
        if only in cell.name
        and (not policy or name in policy)
        and not results.has(cell.name, name, share)
    ]
    for play in side_by_side(run, missing):
        results.add(play)
        _tell(play)
    whole = [cell for cell in cells if _is_whole(cell, results)]
    if not whole:
        return
    text = tables(whole, results)
    (output / "tables.md").write_text(text)
    draw(whole, results, output / "placement.svg")
    click.echo(text)


def _tell(play: Play) -> None:
    seen = play.measures
    click.echo(
        f"{play.cell:<50} x {play.share:<4} {play.policy:<16} goodput {seen.goodput:6.1%}  hit"
        f" {seen.hit_rate:6.1%}  TTFT p99 {seen.ttft_p99_s:7.3f} s  gap p99"
        f" {1000 * seen.gap_p99_s:5.1f} ms  spread {seen.load_spread:.2f}"
    )


def _is_whole(cell: Cell, results: Results) -> bool:
    return all(results.has(cell.name, *play) for play in product(cell.policies, SHARES))


if __name__ == "__main__":
    main()
