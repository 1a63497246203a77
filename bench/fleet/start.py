"""From `pando up` to its ready line: the first start with an empty cache, and later ones.

Run on a quiet machine: python -m bench.fleet.start
CPU seconds are those of all processes until then.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass

import click
import psutil

from pando.up.free_port import free_port


@dataclass(frozen=True, slots=True)
class Start:
    seconds: float
    cpu_seconds: float
    ready: str  # what the command says of its parts


@click.command(help=__doc__)
@click.option("--model", default="smollm2", show_default=True)
@click.option("--workers", default="1,2", show_default=True, help="of a fleet, several by commas")
@click.option("--repeat", default=3, show_default=True, help="later starts")
def main(model: str, workers: str, repeat: int) -> None:
    click.echo("| workers | start | seconds | CPU seconds | parts |\n|---|---|---|---|---|")
    for number in workers.split(","):
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "XDG_CACHE_HOME": cache}
            _row(number, "first, nothing prepared", _start(model, number, environment))
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "XDG_CACHE_HOME": cache}
            prepare = [sys.executable, "-m", "pando_worker.prepare", model]
            subprocess.run(prepare, env=environment, check=True, stdout=subprocess.DEVNULL)
            _row(number, "first after the install", _start(model, number, environment))
            later = [_start(model, number, environment) for _ in range(repeat)]
            later.sort(key=lambda start: start.seconds)
            _row(number, f"later, median of {repeat}", later[repeat // 2])


def _row(workers: str, which: str, start: Start) -> None:
    click.echo(
        f"| {workers} | {which} | {start.seconds:.1f} | {start.cpu_seconds:.1f} | {start.ready} |"
    )


def _start(model: str, workers: str, environment: Mapping[str, str]) -> Start:
    options = ("--model", model, "--workers", workers, "--port", str(free_port("127.0.0.1")))
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "pando", "up", *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "is served at" in line:
                took = time.monotonic() - began
                start = Start(took, _cpu_seconds(process.pid), line.partition("(")[2].strip(" )\n"))
                process.send_signal(signal.SIGINT)
                process.stdout.read()
                return start
    raise click.ClickException(f"pando up ended with exit code {process.returncode}")


def _cpu_seconds(pid: int) -> float:
    """Of the process and all that it started."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    times = [one.cpu_times() for one in family]
    return float(sum(one.user + one.system for one in times))


if __name__ == "__main__":
    main()
