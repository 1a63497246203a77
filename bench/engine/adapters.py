"""What LoRA adapters cost a decode step on the CPU: the same rows without and with them, in turns.

Run: python -m bench.engine.adapters
Both models run in this process: one without adapters, one with. Each turn decodes some steps with
every way, so that noise affects all alike. Then adapters are loaded while steps go on. Results and
definitions: docs/benchmarks/adapters.md.
"""

import json
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as in a worker; before torch reads it

import click
import numpy as np
import torch
from safetensors.torch import save_file

from bench.engine.cpu_engine import described
from pando_worker.adapters.info import AdapterInfo
from pando_worker.adapters.layout import Layout
from pando_worker.batch import AdapterRows, ForwardBatch, SamplingBatch
from pando_worker.runner.adapters.loader import AdapterLoader
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings

PAGE_SIZE = 16
PROMPT = 64
TURN_STEPS = 10


def write_adapter(
    directory: Path, layout: Layout, rank: int, seed: int, dtype: torch.dtype
) -> None:
    """An adapter of all linear layers with random numbers, in PEFT's form."""
    directory.mkdir()
    random = torch.Generator().manual_seed(seed)
    tensors = {}
    for section in (each for each in layout if each.kind == "linear"):
        prefix = f"base_model.model.{section.name}"
        for kind, shape in (("A", (rank, section.inputs)), ("B", (section.outputs, rank))):
            numbers = torch.randn(shape, generator=random).mul_(0.02).to(dtype)
            tensors[f"{prefix}.lora_{kind}.weight"] = numbers
    save_file(tensors, directory / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": "all-linear",
    }
    (directory / "adapter_config.json").write_text(json.dumps(config))


class Decodes:
    """Endless decodes of some rows on a runner, each from a prompt of its own."""

    def __init__(self, runner: TorchModelRunner, rows: int) -> None:
        self._runner, self._rows = runner, rows
        self._most = runner.capacity_tokens // PAGE_SIZE // rows
        self._table = np.arange(rows * self._most, dtype=np.int32).reshape(rows, -1)
        self._cached = 0
        random = np.random.default_rng(0)
        self.prompt = random.integers(0, runner.config.vocab_size, (rows, PROMPT))

    def restart(self, slots: Sequence[int]) -> None:
        """Prefill the prompts."""
        self._cached = 0
        self.step(slots, PROMPT)

    def step(self, slots: Sequence[int], count: int = 1) -> None:
        rows = self._rows
        positions = np.arange(self._cached, self._cached + count)
        ids = self.prompt if count > 1 else -1 - np.arange(rows)[:, None]
        where = self._table[:, positions // PAGE_SIZE] * PAGE_SIZE + positions % PAGE_SIZE
        self._cached += count
        batch = ForwardBatch(
            input_ids=ids.astype(np.int64).flatten(),
            positions=np.tile(positions, rows).astype(np.int64),
            out_slots=where.astype(np.int64).flatten(),
            extend_lens=np.full(rows, count, dtype=np.int32),
            seq_lens=np.full(rows, self._cached, dtype=np.int32),
            page_table=self._table[:, : -(-self._cached // PAGE_SIZE)],
            page_size=PAGE_SIZE,
            req_rows=np.arange(rows),
            sample_rows=np.arange(rows),
            sampling=SamplingBatch(
                temperature=np.zeros(rows, dtype=np.float32),
                top_k=np.zeros(rows, dtype=np.int64),
                top_p=np.ones(rows, dtype=np.float32),
                min_p=np.zeros(rows, dtype=np.float32),
                seed=np.zeros(rows, dtype=np.int64),
                step=np.zeros(rows, dtype=np.int64),
            ),
        )
        if any(slot >= 0 for slot in slots):
            batch.adapters = AdapterRows(np.array(slots, dtype=np.int32))
        step = self._runner.launch(batch)
        step.sample(None)
        step.result()


def load_all(loader: AdapterLoader, paths: Sequence[Path]) -> list[AdapterInfo]:
    page, infos = 0, []
    for slot, path in enumerate(paths):
        info = loader.check(str(path)).result()
        loader.load(slot, range(page, page + info.pages), info).result()
        page += info.pages
        infos.append(info)
    return infos


def timed(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


@click.command()
@click.option("--model", default="smollm2", show_default=True)
@click.option("--rows", default=32, show_default=True)
@click.option("--adapters", default=8, show_default=True)
@click.option("--rank", default=16, show_default=True)
@click.option("--turns", default=12, show_default=True)
@click.option("--loads", default=10, show_default=True, help="adapters loaded while steps go on")
@click.option("--host-mib", default=20, show_default=True, help="for two adapters, not for three")
@click.option("--threads", default=2, show_default=True)
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32")
def main(
    model: str,
    rows: int,
    adapters: int,
    rank: int,
    turns: int,
    loads: int,
    host_mib: int,
    threads: int,
    dtype: str,
) -> None:
    """Measure decode steps with adapters, and the loading of adapters beside steps."""
    logging.basicConfig(level=logging.WARNING)
    common: dict[str, Any] = {
        "model": model,
        "page_size": PAGE_SIZE,
        "max_total_tokens": rows * 512,
        "threads": threads,
    }
    plain = TorchModelRunner(WorkerSettings(**common))
    served = TorchModelRunner(
        WorkerSettings(
            **common,
            max_loras=adapters + 1,
            max_lora_rank=max(rank, 16),
            lora_ranks=(adapters + 1) * -(-rank // 16) * 16,
            lora_host_mib=host_mib,
        )
    )
    assert served.adapters is not None and served.lora is not None
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, str(number)) for number in range(adapters + 3)]
        for number, path in enumerate(paths):
            write_adapter(path, served.lora.layout, rank, number, getattr(torch, dtype))
        load_all(served.adapters, paths[:adapters])
        base, mixed = [-1] * rows, [row % adapters for row in range(rows)]
        ways = {
            "no adapters": (Decodes(plain, rows), base),
            "base only": (Decodes(served, rows), base),
            f"{adapters} adapters": (Decodes(served, rows), mixed),
        }
        times = compare(ways, turns)
        report(times, rows)
        decodes, slots = ways[f"{adapters} adapters"]
        while_loading(decodes, slots, served.adapters, paths[adapters:], adapters, loads)
    click.echo(f"\n{described(threads)}; {turns} turns of {TURN_STEPS} steps")


def compare(ways: dict[str, tuple[Decodes, list[int]]], turns: int) -> dict[str, list[float]]:
    """Seconds of each way's steps, by turns."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, (decodes, slots) in ways.items():
            decodes.restart(slots)
            for _ in range(3):
                decodes.step(slots)  # the second records a tape
            taken = [timed(partial(decodes.step, slots)) for _ in range(TURN_STEPS)]
            if turn:
                times[name].append(statistics.median(taken))
    return times


def report(times: dict[str, list[float]], rows: int) -> None:
    first = next(iter(times.values()))
    click.echo("| steps | ms | tokens/s | of the base's |\n|---|---|---|---|")
    for name, own in times.items():
        seconds = statistics.median(own)
        ratio = statistics.median(a / b for a, b in zip(first, own, strict=True))
        click.echo(f"| {name} | {1e3 * seconds:.2f} | {rows / seconds:,.0f} | {ratio:.3f} |")


def while_loading(
    decodes: Decodes,
    slots: Sequence[int],
    loader: AdapterLoader,
    paths: Sequence[Path],
    slot: int,
    loads: int,
) -> None:
    """Check and load the first of some adapters again and again while steps go on; the others drive
    it out of host memory."""
    path, *others = (str(each) for each in paths)
    work: dict[str, Callable[[AdapterInfo | None], Future[Any]]] = {
        "check": lambda _: loader.check(path),
        "load from host memory": lambda info: _load(loader, slot, info),
        "load from disk": lambda info: _load(loader, slot, info),
    }
    quiet: list[float] = []
    seconds: dict[str, list[float]] = {name: [] for name in work}
    busy: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(loads):
        decodes.restart(slots)
        for _ in range(3):
            decodes.step(slots)
        info: AdapterInfo | None = None
        for name, start in work.items():
            quiet += [timed(partial(decodes.step, slots)) for _ in range(5)]
            if name == "load from disk" and info is not None:
                for other in others:
                    loader.check(other).result()
                assert info.identity not in loader.in_host_memory
            started = time.perf_counter()
            job = start(info)
            job.add_done_callback(partial(_note, seconds[name], started))
            first = True
            while first or not job.done():
                busy[name].append(timed(partial(decodes.step, slots)))
                first = False
            info = job.result() or info
            loader_idle = time.perf_counter() + 0.02
            while time.perf_counter() < loader_idle:
                decodes.step(slots)
    calm = statistics.median(quiet)
    click.echo(f"\nA step without any: {1e3 * calm:.2f} ms, longest {1e3 * max(quiet):.2f}\n")
    click.echo("| beside steps | median ms | longest | a step, ms | of one without | longest |")
    click.echo("|---|---|---|---|---|---|")
    for name, own in busy.items():
        beside = statistics.median(own)
        click.echo(
            f"| {name} | {1e3 * statistics.median(seconds[name]):.0f}"
            f" | {1e3 * max(seconds[name]):.0f} | {1e3 * beside:.2f} | {beside / calm:.3f}"
            f" | {1e3 * max(own):.2f} |"
        )


def _load(loader: AdapterLoader, slot: int, info: AdapterInfo | None) -> Future[None]:
    assert info is not None
    return loader.load(slot, range(slot * info.pages, (slot + 1) * info.pages), info)


def _note(seconds: list[float], started: float, _: Future[Any]) -> None:
    seconds.append(time.perf_counter() - started)


if __name__ == "__main__":
    main()
