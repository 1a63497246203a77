"""Processes that run one model together: gloo ranks, forked from a server that has torch loaded.

They import only this file's imports, as each process repeats them: transformers takes seconds.
"""

import ctypes
import gc
import multiprocessing
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pando_worker.models.config import read_config
from pando_worker.models.loading.building import build_model
from pando_worker.models.loading.loader import load_weights
from pando_worker.models.parallel import ParallelGroup, join_group
from tests.worker.model.paged import CPU, BareModel, Row


@dataclass(frozen=True)
class Job:
    """A job for all ranks. They wait for each other often, which is slow on busy cores."""

    models: dict[str, tuple[Path, int | None]]  # directory and context length
    mixtures: frozenset[str]  # of these models; they run once more with whole experts
    prompts: Sequence[list[int]]
    new_tokens: int
    large_model: Path
    meeting: Path  # does not exist yet


@dataclass(frozen=True)
class Report:
    """Of a rank."""

    hidden: dict[str, list[list[float]]]  # of the prompts' prefills, by model
    logits: dict[str, list[list[float]]]  # of these
    tokens: dict[str, list[list[int]]]  # greedy tokens, by model
    peak_bytes: int  # while the large model was loaded
    after_a_death: str  # a call's error after the last rank has left


def with_whole_experts(name: str) -> str:
    """The name of a mixture's second run."""
    return f"{name}, whole experts"


def run_ranks(job: Job, size: int) -> list[Report]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    pipes = [context.Pipe() for _ in range(size)]
    processes = [
        context.Process(target=_rank, args=(job, rank, size, pipe[1]), daemon=True)
        for rank, pipe in enumerate(pipes)
    ]
    try:
        for process in processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()
        # The last rank first: the others wait for its end, and it waits until its report is read.
        return [_receive(mine) for mine, _ in reversed(pipes)][::-1]
    finally:
        for process in processes:
            process.kill()
            process.join()


def _receive(mine: Connection) -> Report:
    assert mine.poll(100), "a rank says nothing"
    result = mine.recv()
    if isinstance(result, Exception):
        raise result
    assert isinstance(result, Report)
    return result


def _rank(job: Job, rank: int, size: int, results: Connection) -> None:
    torch.set_num_threads(1)
    group = join_group(rank, size, f"file://{job.meeting}", CPU, timedelta(seconds=60))
    try:
        results.send(_report(job, group))
    except Exception as error:
        results.send(error)


def _report(job: Job, group: ParallelGroup) -> Report:
    states, logits, tokens = {}, {}, {}
    runs = {name: (*of, False) for name, of in job.models.items()}
    runs |= {with_whole_experts(name): (*job.models[name], True) for name in sorted(job.mixtures)}
    for name, (directory, context_length, whole) in runs.items():
        model = BareModel(
            directory, group=group, context_length=context_length, expert_parallel=whole
        )
        rows = [Row(list(prompt)) for prompt in job.prompts]
        hidden = model.hidden(rows)
        prefill = model.model.logits(hidden)
        states[name], logits[name] = hidden.tolist(), prefill.tolist()
        best = _best(prefill[np.cumsum([len(row.tokens) for row in rows]) - 1], group)
        for _ in range(job.new_tokens):
            for row, token in zip(rows, best, strict=True):
                row.tokens.append(token)
            best = _best(model.run(rows), group)
        tokens[name] = [row.tokens[-job.new_tokens :] for row in rows]
    return Report(
        hidden=states,
        logits=logits,
        tokens=tokens,
        peak_bytes=_peak_while_loading(job.large_model, group),
        after_a_death=_after_a_death(group),
    )


def _best(logits: Tensor, group: ParallelGroup) -> list[int]:
    """The best token of each row, which the first rank finds for all."""
    first = group.rank == 0
    tokens = logits.argmax(-1) if first else torch.empty(len(logits), dtype=torch.int64)
    return group.broadcast(tokens).tolist()


def _after_a_death(group: ParallelGroup) -> str:
    if group.rank == group.size - 1:
        return "this is the last rank, which ends now"
    try:
        group.all_reduce(torch.ones(1))
    except RuntimeError as error:
        return f"RuntimeError: {error}"
    return "nothing was noticed"


def _peak_while_loading(model_dir: Path, group: ParallelGroup) -> int:
    """Peak bytes of the process's own memory, without mapped files."""
    model = build_model(read_config(model_dir), torch.float32, CPU, group)
    # Memory freed by earlier models would be reused without raising the peak.
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before, peak, done = _own_bytes(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, _own_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    load_weights(model, model_dir, CPU)
    done.set()
    watcher.join()
    return max(peak, _own_bytes()) - before


def _own_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")
