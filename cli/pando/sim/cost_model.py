"""Writes the cost model of a running worker: measures it, and shows how well the model fits."""

import asyncio
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from pando.redact import redact
from pando_sim.cost.calibration.calibrate import Calibration, Options, calibrate
from pando_sim.cost.calibration.errors import CalibrationError
from pando_sim.cost.calibration.observations import UNKNOWNS, Observation
from pando_sim.cost.files import render
from pando_sim.cost.schema import CostFile

_MEANINGS = {
    "request_s": "HTTP server, per request",
    "prompt_token_s": "HTTP server, per prompt token",
    "step_s": "per step",
    "token_s": "per token of a step, after the free ones",
    "prefill_step_s": "extra, per step with prompt tokens",
    "prefill_context_s": "per prompt token and token of its context",
    "decode_row_s": "per decoding request",
    "decode_context_s": "per context token of a decode",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What the file says beside what is measured."""

    path: Path | None  # of the file; by default from the model's name
    name: str | None  # of the cost model; by default from the path
    kv_bytes_per_token: int | None
    copy_bytes_per_s: float | None


def write_cost_model(options: Options, facts: Facts) -> None:
    """Ends the process with 1 if the worker cannot be measured or the file cannot be written."""
    console, url = Console(stderr=True), redact(options.url)
    try:
        calibration = _measure(options, console)
    except CalibrationError as error:
        _fail(f"{url} cannot be measured: {redact(str(error))}")
    path = facts.path or Path(f"{_plain(calibration.worker.model)}.json")
    file = _file(calibration, url, facts.name or _plain(path.stem), facts)
    try:
        path.write_bytes(render(file))
    except OSError as error:
        _fail(f"{path} cannot be written: {error.strerror}")
    out = Console()
    out.print(_residuals(calibration.observations, calibration.fitted.told_s.tolist()))
    out.print(_coefficients(file))
    if not calibration.checked:
        out.print("The worker's metrics do not show whether it served other requests meanwhile.")
    out.print(f"{path} written", soft_wrap=True, highlight=False)


def _fail(why: str) -> NoReturn:
    click.echo(f"pando sim calibrate: {why}", err=True)
    sys.exit(1)


def _measure(options: Options, console: Console) -> Calibration:
    columns = (
        TextColumn("measuring"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return asyncio.run(calibrate(options, progress))


def _file(calibration: Calibration, url: str, name: str, facts: Facts) -> CostFile:
    worker, fitted = calibration.worker, calibration.fitted
    version = f", version {worker.version}" if worker.version else ""
    return CostFile(
        name=name,
        model=worker.model,
        machine=calibration.machine,
        source=f"pando sim calibrate {url}{version}; medians of {calibration.rounds}",
        date=worker.date,
        step=fitted.step,
        request=fitted.request,
        worker=worker.facts(),
        kv_bytes_per_token=facts.kv_bytes_per_token,
        copy_bytes_per_s=facts.copy_bytes_per_s,
        quality=fitted.quality,
    )


def _plain(text: str) -> str:
    """A text as an allowed name for a cost model."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "worker"


def _residuals(observations: Sequence[Observation], told_s: Sequence[float]) -> Table:
    table = Table(title="measurements, and the cost model's predictions")
    table.add_column("measurement")
    for column in ("measured ms", "model ms", "error"):
        table.add_column(column, justify="right")
    for observation, seconds in zip(observations, told_s, strict=True):
        table.add_row(
            observation.what,
            f"{1000 * observation.seconds:.2f}",
            f"{1000 * seconds:.2f}",
            f"{seconds / observation.seconds - 1:+.0%}",
        )
    return table


def _coefficients(file: CostFile) -> Table:
    table = Table(title=f"{file.name}: {file.model} on {file.machine}")
    table.add_column("coefficient")
    table.add_column("microseconds", justify="right")
    table.add_column("of")
    for unknown in UNKNOWNS:
        part = file.request if unknown in file.request.__struct_fields__ else file.step
        table.add_row(unknown, f"{1e6 * getattr(part, unknown):.4g}", _MEANINGS[unknown])
    quality = file.quality
    assert quality is not None
    table.caption = (
        f"{file.step.free_tokens:.0f} tokens of a step are free; median error"
        f" {quality.median_error:.1%}, largest {quality.largest_error:.1%}"
    )
    return table
