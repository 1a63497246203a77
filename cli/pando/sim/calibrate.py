"""`pando sim calibrate`: measures a running worker and writes its cost model."""

import asyncio
import os
import re
import sys
from collections.abc import Sequence
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

_VARIABLES = "PANDO_CALIBRATE"
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


@click.command("calibrate", context_settings={"auto_envvar_prefix": _VARIABLES})
@click.argument("url")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="file for the cost model; by default the model's name with .json",
)
@click.option("--name", help="name of the cost model; by default that of the file")
@click.option("--machine", help="the worker's machine, in words; by default as the worker reports")
@click.option(
    "--repeat",
    type=click.IntRange(1, 101),
    default=5,
    show_default=True,
    help="repetitions of each measurement, or up to 4 more if noise needs it; the median counts",
)
@click.option(
    "--longest-prompt",
    type=click.IntRange(256),
    default=32_768,
    show_default=True,
    help="longest prompt in tokens; shorter if the worker allows less",
)
@click.option(
    "--most-together",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="most requests that decode at once",
)
@click.option(
    "--chunked-prefill-size",
    type=click.IntRange(1),
    help="tokens of a prefill chunk, if the worker does not report them",
)
@click.option(
    "--capacity-tokens",
    type=click.IntRange(1),
    help="tokens of the KV pool, if the worker does not report them",
)
@click.option(
    "--kv-bytes-per-token",
    type=click.IntRange(1),
    help="bytes of keys and values in all layers; a simulated host tier needs it",
)
@click.option(
    "--copy-bytes-per-s",
    type=click.FloatRange(0, min_open=True),
    help="copy rate between device and host memory; a simulated host tier needs it",
)
@click.option(
    "--pause-s",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="pause before each single request, since an idle worker is slower at first",
)
@click.option(
    "--timeout-s",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    show_default=True,
    help="timeout of one request",
)
def command(
    url: str,
    output: Path | None,
    name: str | None,
    kv_bytes_per_token: int | None,
    copy_bytes_per_s: float | None,
    **options: object,
) -> None:
    """Measure the worker at URL, such as http://127.0.0.1:30000, and write its cost model.

    This takes some minutes, in which the worker must not serve other requests. It computes prompts
    of chosen lengths, new and cached, one at a time and several at once. `pando sim` reads the
    file as its cost model. An API key is read from OPENAI_API_KEY.
    """
    if not re.match(r"https?://[^/]", url):
        raise click.UsageError(
            f"URL is {redact(url)!r}: it must be a worker's, such as http://127.0.0.1:30000"
        )
    key = os.environ.get("OPENAI_API_KEY")  # an option would show it in `ps`
    asked = Options(url=url, api_key=key, **options)  # type: ignore[arg-type]
    console = Console(stderr=True)
    try:
        calibration = _measure(asked, console)
    except CalibrationError as error:
        _fail(f"{redact(url)} cannot be measured: {redact(str(error))}")
    path = output or Path(f"{_plain(calibration.worker.model)}.json")
    file = _file(
        calibration,
        url=redact(url),
        name=name or _plain(path.stem),
        kv_bytes_per_token=kv_bytes_per_token,
        copy_bytes_per_s=copy_bytes_per_s,
    )
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


def _file(
    calibration: Calibration,
    *,
    url: str,
    name: str,
    kv_bytes_per_token: int | None,
    copy_bytes_per_s: float | None,
) -> CostFile:
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
        kv_bytes_per_token=kv_bytes_per_token,
        copy_bytes_per_s=copy_bytes_per_s,
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
