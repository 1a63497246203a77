"""One decode step of Whisper with its weights in 16 bits, in float32, and with keys in bfloat16.

    python -m bench.audio.decode_step --model whisper-base

All run in this process by turns, so that noise affects all alike. Each row attends to a source of
its own, of half a minute. CPU time is that of all threads: on a busy machine compare that.
"""

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click
import numpy as np

from bench.engine.cpu_engine import described
from pando_worker.batch import ForwardBatch
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.runner.trial import trial_batch
from pando_worker.settings import WorkerSettings

PAGE, CACHED = 16, 64
WAYS = {
    "weights in float32": {"quantization": "none"},
    "weights as the checkpoint has them": {"quantization": "auto"},
    "and keys and values in bfloat16": {"quantization": "auto", "kv_cache_dtype": "bfloat16"},
}


@dataclass(slots=True)
class Way:
    runner: TorchModelRunner
    batch: ForwardBatch
    cpu: list[float] = field(default_factory=list)  # seconds a step
    wall: list[float] = field(default_factory=list)

    def run(self, steps: int) -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(steps):
            self.runner.logits(self.batch)
        self.cpu.append((time.process_time() - cpu) / steps)
        self.wall.append((time.perf_counter() - wall) / steps)


@click.command(help=__doc__)
@click.option("--model", type=click.Path(path_type=Path, exists=True), required=True)
@click.option("--rows", type=click.IntRange(1), multiple=True, default=(1, 8), show_default=True)
@click.option("--turns", type=click.IntRange(1), default=30, show_default=True)
@click.option("--steps", type=click.IntRange(1), default=3, show_default=True, help="of a turn")
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
def main(model: Path, rows: Sequence[int], turns: int, steps: int, threads: int) -> None:
    runners = {name: _runner(model, max(rows), threads, flags) for name, flags in WAYS.items()}
    click.echo(
        "| rows | | CPU ms, least | median | ms, least | median |\n|---|---|---|---|---|---|"
    )
    for count in rows:
        ways = {name: Way(runner, _batch(runner, count)) for name, runner in runners.items()}
        for way in ways.values():  # which records the step
            way.run(3)
            way.cpu, way.wall = [], []
        for _ in range(turns):
            for way in ways.values():
                way.run(steps)
        for name, way in ways.items():
            times = (
                each(part) for part in (way.cpu, way.wall) for each in (min, statistics.median)
            )
            click.echo(f"| {count} | {name} | {' | '.join(f'{1e3 * one:.1f}' for one in times)} |")
    click.echo(f"\n{described(threads)}; {turns} turns of {steps} steps")


def _runner(model: Path, rows: int, threads: int, flags: dict[str, str]) -> TorchModelRunner:
    fields = {
        "model": str(model),
        "threads": threads,
        "page_size": PAGE,
        "max_total_tokens": rows * (1504 + CACHED + PAGE),
        "cpu_kernels": "on",
        **flags,
    }
    return TorchModelRunner(WorkerSettings.model_validate(fields))


def _batch(runner: TorchModelRunner, rows: int) -> ForwardBatch:
    """Decodes whose sources and tokens lie in pages of their own."""
    batch = trial_batch(
        cached=CACHED, extend=1, page_size=PAGE, rows=rows, source=runner.pools.source
    )
    assert batch.sources is not None
    of_source, own = batch.sources.page_table.shape[1], batch.page_table.shape[1]
    sources = np.arange(rows * of_source, dtype=np.int32).reshape(rows, -1)
    table = (sources.size + np.arange(rows * own, dtype=np.int32)).reshape(rows, -1)
    return replace(
        batch,
        page_table=table,
        out_slots=table[:, CACHED // PAGE].astype(np.int64) * PAGE + CACHED % PAGE,
        sources=replace(batch.sources, page_table=sources),
    )


if __name__ == "__main__":
    sys.exit(main())
