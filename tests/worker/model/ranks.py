"""Processes that run one model together: gloo ranks, forked from a server that has torch loaded.

What they import is all here, for each of them would import it again: transformers takes seconds.
"""

import multiprocessing
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import torch

from pando_worker.models.config import read_config
from pando_worker.models.loader import build_model, load_weights
from pando_worker.models.parallel import ParallelGroup, join_group, leave_group
from tests.worker.model.paged import CPU, BareModel, Row


@dataclass(frozen=True)
class Job:
    """For all ranks."""

    models: dict[str, Path]
    prompts: Sequence[list[int]]
    new_tokens: int
    large_model: Path
    meeting: Path  # does not exist yet


@dataclass(frozen=True)
class Report:
    """Of a rank."""

    logits: dict[str, list[list[float]]]  # of the prompts' prefills, by model
    tokens: dict[str, list[list[int]]]  # greedy ones, by model
    peak_bytes: int  # while the large model was loaded
    after_a_death: str  # what a call says once the last rank has left


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
        return [_receive(mine, theirs) for mine, theirs in pipes]
    finally:
        for process in processes:
            process.kill()
            process.join()


def _receive(mine: Connection, theirs: Connection) -> Report:
    theirs.close()
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
    logits, tokens = {}, {}
    for name, directory in job.models.items():
        model = BareModel(directory, group=group)
        logits[name] = model.run([Row(list(prompt)) for prompt in job.prompts]).tolist()
        tokens[name] = model.greedy(job.prompts, job.new_tokens, chunk=20)
    return Report(
        logits=logits,
        tokens=tokens,
        peak_bytes=_peak_while_loading(job.large_model, group),
        after_a_death=_after_a_death(group),
    )


def _after_a_death(group: ParallelGroup) -> str:
    if group.rank == group.size - 1:
        leave_group(group)
        return "left"
    try:
        group.all_reduce(torch.ones(1))
    except RuntimeError as error:
        return f"RuntimeError: {error}"
    return "nothing was noticed"


def _peak_while_loading(model_dir: Path, group: ParallelGroup) -> int:
    """Bytes of the process's own memory; files that are mapped do not count."""
    model = build_model(read_config(model_dir), torch.float32, CPU, group)
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
