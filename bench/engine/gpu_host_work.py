"""What the host does for a step of decodes on a GPU, measured without one: all of the worker's own
work but the launches and what flashinfer does in its `plan`.

Run: python -m bench.engine.gpu_host_work
A scheduler runs requests as in `bench.scheduler.scheduler_loop`. Its runner prepares each step as
for a CUDA graph, in memory of the host in place of the device's, and serializes it as for other
ranks. Times are CPU times of the one thread.
Results and machine in docs/benchmarks/gpu-host.md.
"""

import os
import pickle
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import click
import numpy as np
import torch
from torch import Tensor

from bench.scheduler.scheduler_loop import Case, Loop, NullRunner, _NullStep
from pando_worker.attention.backend import AttentionLayer
from pando_worker.attention.device_pages import Padding, TableSize
from pando_worker.attention.flashinfer.backend import FlashinferAttention
from pando_worker.attention.flashinfer.graphs import FlashinferGraphs
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.attention.staging import Staging
from pando_worker.batch import ForwardBatch
from pando_worker.ranks.page_tables import without_tables
from pando_worker.runner.cuda.cuda_graph import CudaGraphRunner, graph_sizes
from pando_worker.runner.cuda.graph_inputs import GraphInputs
from pando_worker.runner.sampling.future_tokens import FutureTokens

CPU = torch.device("cpu")
HEADS: dict[str, Any] = {"heads": 4, "kv_heads": 1, "head_dim": 64, "v_head_dim": 64}
HIDDEN, VOCAB = 8, 8
CASES = [
    Case(name=name, batch=batch, context=context, window=window)
    for name, window in (("", 0), ("half of the layers with windows of 1k tokens", 1024))
    for batch in (64, 256)
    for context in (1024, 8192, 32_768)
    if batch * context <= 64 * 32_768
] + [Case(name="padded to a graph of 64", batch=60, context=8192)]


class NullWrapper:
    """A wrapper of flashinfer whose plans and kernels take no time."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def reset_workspace_buffer(self, *_: object) -> None: ...

    def plan(self, *_: object, **__: object) -> None: ...

    def run(self, *_: object, **__: object) -> None: ...


NULL_LIBRARY: Any = SimpleNamespace(
    Decode=NullWrapper,
    Prefill=NullWrapper,
    SinkPrefill=NullWrapper,
    append_paged_kv_cache=lambda *_: None,
    merge_state=lambda *_: None,
)


class NullModel:
    """A model whose kernels and results take no time."""

    def __init__(self) -> None:
        self._logits = torch.zeros(0, VOCAB)

    def __call__(self, input_ids: Tensor, positions: Tensor, attention: object) -> Tensor:
        return torch.zeros(len(input_ids), HIDDEN)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._logits


class KeptStaging(Staging):
    """As on a GPU: each step takes the same memory again."""

    def wait(self) -> None:
        self._used = 0


def null_lister(table: Tensor, *asked: Tensor | int) -> Tensor:
    """A kernel on the device."""
    return table[0]


def no_capture(run: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    return lambda: None, run()


@dataclass
class Times:
    """CPU seconds of steps in which all requests decode."""

    preparing: list[float] = field(default_factory=list)
    serializing: list[float] = field(default_factory=list)
    message_bytes: int = 0  # of the last step


class PreparingRunner(NullRunner):
    """Prepares decodes as for a GPU."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.times = Times()
        self._case = case
        self._graphs: CudaGraphRunner | None = None

    @torch.inference_mode()
    def launch(self, batch: ForwardBatch) -> _NullStep:
        started = time.thread_time()
        if len(batch.input_ids) == len(batch.seq_lens) == self._case.batch:
            self._prepare(batch)
        self.seconds += time.thread_time() - started
        return super().launch(batch)

    def _prepare(self, batch: ForwardBatch) -> None:
        if self._graphs is None:
            self._graphs = _graphs(self._case)
        started = time.thread_time()
        self._graphs.run(batch)
        prepared = time.thread_time()
        data = pickle.dumps(without_tables(batch), protocol=5)
        self.times.serializing.append(time.thread_time() - prepared)
        self.times.preparing.append(prepared - started)
        self.times.message_bytes = len(data)


def _graphs(case: Case) -> CudaGraphRunner:
    most = case.context + 4096
    kinds = [None, case.window] if case.window else [None]
    layers = [
        AttentionLayer(index=index, scale=0.125, window=window, **HEADS)
        for index, window in enumerate(kinds)
    ]
    slots = case.batch * most
    pool = TokenToKVPool(
        layers,
        slots,
        torch.bfloat16,
        CPU,
        windowed=frozenset({1} if case.window else ()),
        window_slots=slots if case.window else 0,
        spare_slots=case.page_size,
    )
    attention = FlashinferAttention(
        pool,
        case.page_size,
        torch.bfloat16,
        most_tokens=256,
        library=NULL_LIBRARY,
        table=TableSize(case.batch + 1, most // case.page_size),
        lister=null_lister,
    )
    attention.staging = KeptStaging(CPU)
    assert attention.tables is not None
    page = slots // case.page_size
    sizes = graph_sizes(256)
    padding = Padding(page, page if case.window else None, attention.tables.padding_row)
    return CudaGraphRunner(
        NullModel(),
        FlashinferGraphs(attention, sizes[-1], most, padding),
        FutureTokens(case.batch + 1, CPU),
        GraphInputs(sizes[-1], CPU, None),
        sizes=sizes,
        capture=no_capture,
    )


@click.command()
@click.option("--steps", type=click.IntRange(10), default=300, show_default=True)
def main(steps: int) -> None:
    """Measure what the host does for each step of decodes on a GPU."""
    torch.set_num_threads(1)
    click.echo(f"Python {platform.python_version()}, torch {torch.__version__}, {steps} steps,")
    click.echo(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the start\n")
    click.echo("| rows | context | | scheduler | preparing | for other ranks | message, KiB |")
    click.echo("|---|---|---|---|---|---|---|")
    for case in CASES:
        runner = PreparingRunner(case)
        scheduling = Loop(case, steps, runner, keeps_tables=True).run(steps)
        times = runner.times
        microseconds = [
            1000 * np.median(scheduling),
            *(1e6 * np.median(some[-steps:]) for some in (times.preparing, times.serializing)),
        ]
        cells = " | ".join(f"{number:.0f} µs" for number in microseconds)
        size = times.message_bytes / 1024
        click.echo(f"| {case.batch} | {case.context} | {case.name} | {cells} | {size:.0f} |")


if __name__ == "__main__":
    main()
