"""The engine on a GPU: how close its decodes and prefills are to the GPU's limits.

Run: python -m bench.gpu.speed --model llama-3-8b --json result.json
No weights are downloaded: models have the shapes of well-known ones and random numbers. Memory
bandwidth and the rate of a matrix product are measured first, in the same run. Shares refer to
these; MFU refers to the peak in the device's data sheet. Every number is the median of some rounds,
after one that warms up. `--parts` selects some parts, so that a run takes minutes. `--dry` runs
everything with tiny shapes on a CPU: it shows that this script works; its numbers mean nothing.
"""

import gc
import logging
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click
import msgspec
import torch

from bench.gpu import ceilings, parts, rival
from bench.gpu.engine import Engine
from bench.gpu.report import Report, markdown
from bench.gpu.shapes import DRY_SHAPES, SHAPES, Shape
from pando_worker.user_cache import write_whole

PARTS = ("decode", "prefill", "shared", "ttft", "busy", "transformers")


@click.command(help=__doc__)
@click.option("--model", type=click.Choice(list(SHAPES)), default="llama-3-8b")
@click.option(
    "--parts", "wanted", default=",".join(PARTS), help="some of them, separated by commas"
)
@click.option("--batches", help="decodes of so many rows, separated by commas, in place of all")
@click.option("--dry", is_flag=True, help="tiny shapes on the CPU")
@click.option("--set", "options", multiple=True, help="a setting of the worker, name=value")
@click.option("--peak-tflops", type=float, help="dense peak of a device that is not listed")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="file for the result")
def main(
    model: str,
    wanted: str,
    batches: str | None,
    dry: bool,
    options: tuple[str, ...],
    peak_tflops: float | None,
    json_path: Path | None,
) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    chosen = [part.strip() for part in wanted.split(",")]
    if unknown := set(chosen) - set(PARTS):
        raise click.BadParameter(f"{', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    if not dry and not torch.cuda.is_available():
        raise click.ClickException("torch finds no GPU; --dry runs tiny shapes on the CPU")

    def save(report: Report) -> None:
        """After each part, so that a later one may fail, or reach the time limit."""
        if json_path is not None:
            write_whole(json_path, msgspec.json.format(msgspec.json.encode(report)))

    shape, sizes = (DRY_SHAPES if dry else SHAPES)[model], parts.DRY if dry else parts.LARGE
    if batches is not None:
        rows = batches.split(",")
        if not all(number.isdecimal() and int(number) for number in rows):
            raise click.BadParameter("--batches takes numbers, as in 1,16,64")
        sizes = msgspec.structs.replace(sizes, batches=[int(number) for number in rows])
    settings: dict[str, Any] = dict(option.split("=", 1) for option in options)
    with tempfile.TemporaryDirectory() as directory:
        shape.save(Path(directory))
        peak = None if peak_tflops is None else 1e12 * peak_tflops
        report = _measure(Path(directory), shape, sizes, chosen, dry, settings, peak, save)
    click.echo(markdown(report))
    save(report)


def _measure(
    directory: Path,
    shape: Shape,
    sizes: parts.Sizes,
    chosen: list[str],
    dry: bool,
    options: dict[str, Any],
    peak: float | None,
    save: Callable[[Report], None],
) -> Report:
    device = torch.device("cpu" if dry else "cuda:0")
    dtype = torch.float32 if dry else torch.bfloat16
    name = "CPU, dry run" if dry else torch.cuda.get_device_name(device)
    peak = peak or ceilings.peak_of(name)
    found = ceilings.measure(device, dtype, large=not dry, peak=peak)
    torch.cuda.empty_cache()
    engine = Engine(directory, device=device.type, **_settings(sizes, dry) | options)
    report = Report(
        model=shape.name,
        device=name,
        versions=_versions(),
        path=type(engine.model.attention).__name__,
        sizes=sizes,
        ceilings=found,
    )
    _run_parts(engine, report, shape, chosen, dtype.itemsize, save)
    del engine  # frees its memory for the other one
    gc.collect()
    torch.cuda.empty_cache()
    if "transformers" in chosen:
        report.rival_attention = rival.attention()
        report.rival = rival.end_to_end(directory, shape, sizes, device, dtype)
    return report


def _run_parts(
    engine: Engine,
    report: Report,
    shape: Shape,
    chosen: list[str],
    weight_size: int,
    save: Callable[[Report], None],
) -> None:
    sizes, found = report.sizes, report.ceilings
    measured: dict[str, tuple[str, Callable[[], Any]]] = {
        "decode": ("decode", lambda: parts.decode(engine, shape, sizes, found, weight_size)),
        "prefill": ("prefill", lambda: parts.prefill(engine, shape, sizes, found)),
        "shared": ("shared", lambda: parts.shared(engine, shape, sizes)),
        "ttft": ("first_tokens", lambda: parts.first_tokens(engine, shape, sizes)),
        "busy": ("busy", lambda: parts.busy(engine, shape, sizes)),
        "transformers": ("end_to_end", lambda: parts.end_to_end(engine, shape, sizes)),
    }
    for part, (field, measure) in measured.items():
        if part in chosen:
            setattr(report, field, measure())
            save(report)


def _settings(sizes: parts.Sizes, dry: bool) -> dict[str, Any]:
    if dry:
        few = {"max_total_tokens": 4096, "chunked_prefill_size": 32, "threads": 1}
        return few | {"cpu_kernels": "off"}  # torch's profiler does not see them
    most = max(sizes.batches)
    return {"chunked_prefill_size": 8192, "max_running_requests": most, "log_every_steps": 0}


def _versions() -> dict[str, str]:
    found = {}
    for name in ("torch", "flashinfer-python", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found


if __name__ == "__main__":
    main()
