"""Simulates what the file of results lacks, and writes the tables."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean

import click
import msgspec

from bench.simulator.adapters.cells import CELLS, POLICIES, SEEDS, Cell, Play, play
from bench.simulator.side_by_side import side_by_side

NEAR = 0.02
"""As good as the best: within this share of its time to first token, or of all requests."""


@click.command()
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), required=True)
@click.option("--only", default="", help="only cells with this in their names")
def main(output: Path, only: str) -> None:
    """OUTPUT has a JSON line for each play; those in it are not simulated again."""
    plays = _read(output)
    known = {(each.cell, each.policy, each.seed) for each in plays}
    missing = [
        (cell, policy, seed)
        for seed, cell, policy in product(SEEDS, CELLS, POLICIES)
        if only in cell.name and (cell.name, policy, seed) not in known
    ]
    for one in side_by_side(play, missing):
        plays.append(one)
        with output.open("ab") as file:
            file.write(msgspec.json.encode(one) + b"\n")
        click.echo(
            f"{one.cell:<24} {one.policy:<16} seed {one.seed}  goodput {one.goodput:6.1%}"
            f"  TTFT p99 {one.ttft_p99_s:6.3f} s  loads {one.loads}"
        )
    for cell in CELLS:
        click.echo(_table(cell, [each for each in plays if each.cell == cell.name]))


def _read(path: Path) -> list[Play]:
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Play) for line in path.read_bytes().splitlines()]


def _table(cell: Cell, plays: Sequence[Play]) -> str:
    """Means over the seeds; what is best, or as good, is bold."""
    means = [
        _mean(own) for name in POLICIES if (own := [each for each in plays if each.policy == name])
    ]
    if not means:
        return ""
    goodput = max(each.goodput for each in means) - NEAR
    p99_s = min(each.ttft_p99_s for each in means) * (1 + NEAR)
    loads = min(each.loads for each in means)
    rows = [
        f"**{cell.name}**",
        "",
        "| placement | goodput | TTFT p50 | TTFT p99 | hit rate | loads |",
    ]
    rows.append("|---|---|---|---|---|---|")
    for each in means:
        cells = (
            f"`{each.policy}`",
            _bold(f"{100 * each.goodput:.1f} %", each.goodput >= goodput),
            f"{1000 * each.ttft_p50_s:.0f} ms",
            _bold(f"{each.ttft_p99_s:.2f} s", each.ttft_p99_s <= p99_s),
            f"{100 * each.hit_rate:.1f} %",
            _bold(f"{each.loads:,}", each.loads <= loads),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(["", *rows])


def _bold(words: str, is_best: bool) -> str:
    return f"**{words}**" if is_best else words


def _mean(plays: Sequence[Play]) -> Play:
    return msgspec.structs.replace(
        plays[0],
        goodput=fmean(each.goodput for each in plays),
        ttft_p50_s=fmean(each.ttft_p50_s for each in plays),
        ttft_p99_s=fmean(each.ttft_p99_s for each in plays),
        hit_rate=fmean(each.hit_rate for each in plays),
        loads=round(fmean(each.loads for each in plays)),
    )


if __name__ == "__main__":
    main()
