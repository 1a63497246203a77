"""Runs the missing days, and writes results, tables and plots."""

import os
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import click
import msgspec

from bench.simulator.scaling_days import loads, plot
from bench.simulator.scaling_days.contenders import KNOBS, STARTS_S, Contender, contenders
from bench.simulator.scaling_days.loads import Load
from bench.simulator.scaling_days.means import means
from bench.simulator.scaling_days.runs import Result, run
from bench.simulator.scaling_days.tables import table
from bench.simulator.side_by_side import side_by_side


@click.command()
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), required=True)
@click.option(
    "--conversation",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Mooncake's conversation_trace.jsonl, gzipped; without it only the synthetic load is run",
)
@click.option(
    "--start-seconds",
    type=float,
    multiple=True,
    default=STARTS_S,
    show_default=True,
    help="start time of a replica; repeat it for further sets of runs",
)
@click.option(
    "--hours", type=click.FloatRange(1.0), default=24.0, show_default=True, help="of the day"
)
@click.option(
    "--days",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="number of days with different arrivals and bursts; tables and plots show means",
)
@click.option(
    "--again",
    type=click.Choice(list(KNOBS)),
    multiple=True,
    help="run this scaler's days even if results.json has them; repeat it for more",
)
def main(
    output: Path,
    conversation: Path | None,
    start_seconds: tuple[float, ...],
    hours: float,
    days: int,
    again: tuple[str, ...],
) -> None:
    """Runs days of each scaler, with its knob from careful to thrifty.

    Results in OUTPUT/results.json are not run again, so an interrupted run continues where it was.
    """
    output.mkdir(parents=True, exist_ok=True)
    kept = output / "results.json"
    results = [one for one in _read(kept) if one.scaler not in again]
    every = []
    for day in range(1, days + 1):
        every.append(loads.answers(day, output))
        if conversation is not None:
            every.append(loads.conversation(day, conversation, output))
    kept_keys = {one.key for one in results}
    missing = [
        (output / "details", load, contender, start_s, hours)
        for load, start_s, contender in _days(every, start_seconds)
        if (load.day, hours, load.name, start_s, contender.scaler, contender.knob) not in kept_keys
    ]
    for result in side_by_side(run, missing):
        results.append(result)
        _write(results, kept)
        click.echo(f"{result}  load {os.getloadavg()[0]:.1f}", err=True)
    asked = [one for one in results if one.hours == hours and one.day <= days]
    for name in dict.fromkeys(load.name for load in every):
        _show([one for one in asked if one.load == name], output)


def _days(
    every: Sequence[Load], starts_s: Sequence[float]
) -> Iterator[tuple[Load, float, Contender]]:
    """The first contender of every scaler, then the second of every scaler, and so on."""
    turns = zip_longest(*(contenders(load) for load in every))
    for turn in turns:
        for start_s in starts_s:
            for load, contender in zip(every, turn, strict=True):
                if contender is not None:
                    yield load, start_s, contender


def _read(path: Path) -> list[Result]:
    return msgspec.json.decode(path.read_bytes(), type=list[Result]) if path.exists() else []


def _write(results: Sequence[Result], path: Path) -> None:
    """Writes the file atomically."""
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    new.replace(path)


def _show(results: Sequence[Result], output: Path) -> None:
    """Prints the results of one load."""
    order = {scaler: number for number, scaler in enumerate(KNOBS)}
    load, rows = results[0].load, means(results)
    for start_s in sorted({one.start_s for one in rows}):
        here = [one for one in rows if one.start_s == start_s]
        here.sort(key=lambda one: (order[one.scaler], one.knob))
        click.echo(f"\n{load}, a replica starts in {start_s:g} s\n\n{table(here)}")
    plot.write(output / f"scaling-days-{load}.svg", rows)


if __name__ == "__main__":
    main()
