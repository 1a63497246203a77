"""Everything on one GPU in at most ten minutes: whether the engine is right on it, and how fast.

Run: python -m bench.gpu
The tests of tests/gpu run first, then decodes and prefills of two models against limits of the
device that are measured in the same run, beside transformers. Each program has a time limit, and
the others run whatever fails. A page, with failures first, and the raw numbers are written to the
folder. `--tune` only times both kernels of attention and keeps the table by which the worker then
chooses. `--dry` runs everything with tiny shapes on a CPU, where the tests are skipped.
"""

import sys
import tempfile
from pathlib import Path

import click
import msgspec
import torch

from bench.gpu.stages import Outcome, Stage, page, run
from bench.gpu.tune import tune
from pando_worker.attention.flashinfer.kernel_choice import table_path
from pando_worker.attention.flashinfer.library import FlashinferUnavailable, Library
from pando_worker.user_cache import write_whole

ROOT = Path(__file__).parents[2]
TESTERS = 8  # processes that test at once: on an H200 90 s, with kernels that had been compiled


@click.command(help=__doc__)
@click.option("--tune", "only_tune", is_flag=True, help="only the table of attention's kernels")
@click.option("--dry", is_flag=True, help="tiny shapes on the CPU")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("gpu-run"),
    show_default=True,
    help="folder for the page and the raw numbers",
)
def main(only_tune: bool, dry: bool, output: Path) -> None:
    if not dry and not torch.cuda.is_available():
        raise click.ClickException("torch finds no GPU; --dry runs tiny shapes on the CPU")
    if only_tune:
        _tune(dry)
        return
    output.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as reports:
        for stage in stages(Path(reports), dry):
            click.echo(f"{stage.name}: at most {stage.limit_s:.0f} s")
            outcomes.append(run(stage, ROOT))
            # After each, so that what there is survives an interrupt.
            text = page(outcomes)
            (output / "gpu.md").write_text(text)
            raw = msgspec.json.format(msgspec.json.encode(outcomes))
            (output / "gpu.json").write_bytes(raw)
    click.echo(text)
    if any(outcome.failure is not None for outcome in outcomes):
        sys.exit(1)


def stages(reports: Path, dry: bool) -> list[Stage]:
    """Together at most ten minutes."""
    python = sys.executable

    def speed(model: str, parts: str, limit_s: float) -> Stage:
        report = reports / f"{model}.json"
        words = ["--model", model, "--parts", parts, "--json", str(report)]
        command = [python, "-m", "bench.gpu.speed", *words, *(["--dry"] if dry else [])]
        return Stage(f"speed of {model}", command, limit_s, report)

    return [
        Stage("tests", [python, "-m", "pytest", "-q", "-n", str(TESTERS), "tests/gpu"], 240),
        speed("llama-3-8b", "decode,prefill,shared,busy,ttft,transformers", 210),
        speed("qwen3-30b-a3b", "decode,prefill,busy", 150),
    ]


def _tune(dry: bool) -> None:
    if dry:
        raise click.UsageError("--tune times kernels that no CPU has")
    try:
        table = tune(torch.device("cuda", 0), Library())
    except FlashinferUnavailable as reason:
        raise click.ClickException(str(reason)) from reason
    path = table_path(table.device)
    write_whole(path, msgspec.json.format(msgspec.json.encode(table)))
    click.echo(f"{path} written: {sum(len(each.points) for each in table.measured)} calls")


if __name__ == "__main__":
    main()
