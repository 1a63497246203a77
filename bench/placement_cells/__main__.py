"""Simulates the cells that are not simulated yet, and writes the tables and the plot."""

import time
from pathlib import Path

import click

from bench.placement_cells.cells import CELLS, FILES, SMALL_CELLS
from bench.placement_cells.plot import draw
from bench.placement_cells.results import Results
from bench.placement_cells.simulated import run
from bench.placement_cells.table import tables


@click.command()
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option(
    "--traces",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"folder of {', '.join(FILES.values())}; without it the small trace is played alone",
)
@click.option("--only", default="", help="cells with this in their names")
@click.option("--policy", multiple=True, help="only these placements")
def main(output: Path, traces: Path | None, only: str, policy: tuple[str, ...]) -> None:
    """Simulate what OUTPUT/results.jsonl does not have yet."""
    results = Results(output / "results.jsonl")
    cells = CELLS if traces is not None else SMALL_CELLS
    for cell in cells:
        for name in cell.policies:
            wanted = only in cell.name and (not policy or name in policy)
            if not wanted or results.has(cell.name, name):
                continue
            start = time.perf_counter()
            result = run(cell, name, traces)
            results.add(result)
            took_s = time.perf_counter() - start
            click.echo(
                f"{cell.name:<50} {name:<16} goodput {result.goodput:6.1%}  hit"
                f" {result.hit_rate:6.1%}  TTFT p99 {result.ttft_p99_s:7.3f} s  gap p99"
                f" {1000 * result.gap_p99_s:5.1f} ms  spread {result.load_spread:.2f} "
                f" {took_s:5.1f} s"
            )
    whole = [cell for cell in cells if all(results.has(cell.name, one) for one in cell.policies)]
    if not whole:
        return
    text = tables(whole, results)
    (output / "tables.md").write_text(text)
    draw(whole, results, output / "placement.svg")
    click.echo(text)


if __name__ == "__main__":
    main()
