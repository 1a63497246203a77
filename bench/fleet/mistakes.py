"""How soon `pando` says each mistake of docs/mistakes.md, from the command to its exit.

Run on a quiet machine: python -m bench.fleet.mistakes
Each command runs in a new Python, as at a shell; the goal is less than a second on an idle machine.
Where others run beside it, its least CPU seconds of several runs say more: they only add.
"""

import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from tests.cli.mistakes.commands import MISTAKES, make_folder, parted

GOAL_S = 1.0
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Said:
    command: str
    seconds: float  # the median
    cpu_seconds: float  # the least


@click.command(help=__doc__)
@click.option("--repeat", default=3, show_default=True, help="runs of each command")
@click.option("--only", multiple=True, help="only commands with this text, or one of these")
def main(repeat: int, only: tuple[str, ...]) -> None:
    everything: list[Said] = []
    click.echo("| mistakes | commands | median | slowest | its least CPU seconds | which |")
    click.echo("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_folder(folder)
        for title, commands in MISTAKES.items():
            said = [
                _said(command, folder, repeat)
                for command in commands
                if not only or any(text in command for text in only)
            ]
            if said:
                _row(title, said)
            everything += said
    late = [one for one in everything if one.seconds >= GOAL_S]
    click.echo(f"\n{len(late)} of {len(everything)} took {GOAL_S:g} s or longer")
    for one in late:
        click.echo(f"  {one.seconds:.2f} s, CPU {one.cpu_seconds:.2f} s: pando {one.command}")
    busy = [one for one in late if one.cpu_seconds >= GOAL_S]
    click.echo(f"{len(busy)} of them used {GOAL_S:g} s of CPU or more in each run")


def _row(title: str, said: list[Said]) -> None:
    slowest = max(said, key=lambda one: one.seconds)
    median = statistics.median(one.seconds for one in said)
    click.echo(
        f"| {title} | {len(said)} | {median:.2f} | {slowest.seconds:.2f} |"
        f" {slowest.cpu_seconds:.2f} | `{slowest.command}` |"
    )


def _said(command: str, folder: Path, repeat: int) -> Said:
    variables, words = parted(command)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PANDO_")},
        **variables,
        "HF_HUB_OFFLINE": "1",
    }
    runs = [_run(words, folder, environment) for _ in range(repeat)]
    seconds, cpu_seconds = zip(*runs, strict=True)
    return Said(command, statistics.median(seconds), min(cpu_seconds))


def _run(words: list[str], folder: Path, environment: Mapping[str, str]) -> tuple[float, float]:
    before, began = os.times(), time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "pando", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    took, after = time.monotonic() - began, os.times()
    if ended.returncode not in (1, 2):
        raise click.ClickException(f"pando {shlex.join(words)} ended with {ended.returncode}")
    cpu = after.children_user + after.children_system
    return took, cpu - before.children_user - before.children_system


if __name__ == "__main__":
    main()
