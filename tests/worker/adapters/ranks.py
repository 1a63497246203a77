"""Processes that run models with adapters together, as `tests/worker/model/ranks.py` does without.

They import only this file's imports, as each process repeats them: transformers takes seconds.
"""

import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from pando_worker.adapters.info import RANK_PAGE
from pando_worker.attention.torch_backend import TorchAttention
from pando_worker.batch import ForwardBatch
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.lora.linear import LoraMemory
from pando_worker.models.parallel import ParallelGroup, join_group
from pando_worker.runner.adapters.loader import AdapterLoader
from pando_worker.runner.adapters.pace import Pace
from pando_worker.runner.adapters.sites import attach, layout_of
from pando_worker.runner.adapters.step import head_tokens, lora_tokens
from tests.worker.adapters.batches import with_adapters
from tests.worker.model.paged import CPU, BareModel, Row

PAGES = 120


@dataclass(frozen=True)
class Model:
    directory: Path
    context_length: int | None
    adapters: Sequence[Path]  # in slots 0, 1, ...


@dataclass(frozen=True)
class Job:
    """
    Attributes:
        slots: of each prompt, -1 for the base
        decoded: tokens that each row decodes, one after the other, given beforehand
        meeting: does not exist yet
    """

    models: dict[str, Model]
    prompts: Sequence[list[int]]
    decoded: Sequence[int]
    slots: dict[str, list[int]]
    meeting: Path


class Found(NamedTuple):
    """Of a model: in each step the final hidden states, and the logits after each row."""

    hidden: list[list[list[float]]]
    logits: list[list[list[float]]]


Report = dict[str, Found]
"""Of a rank, by model."""


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
        return [_receive(mine) for mine, _ in pipes]
    finally:
        for process in processes:
            process.kill()
            process.join()


def _receive(mine: Connection) -> Report:
    assert mine.poll(100), "a rank says nothing"
    result = mine.recv()
    if isinstance(result, Exception):
        raise result
    report: Report = result
    return report


def _rank(job: Job, rank: int, size: int, results: Connection) -> None:
    torch.set_num_threads(1)
    group = join_group(rank, size, f"file://{job.meeting}", CPU, timedelta(seconds=60))
    try:
        results.send({name: _found(job, name, group) for name in job.models})
    except Exception as error:
        results.send(error)


def _found(job: Job, name: str, group: ParallelGroup) -> Found:
    given = job.models[name]
    bare = BareModel(given.directory, group=group, context_length=given.context_length)
    assert isinstance(bare.model, CausalLM)
    memory = LoraMemory(
        layout_of(bare.model),
        slots=len(given.adapters),
        pages=PAGES,
        most_rank=4 * RANK_PAGE,
        dtype=torch.float32,
        device=CPU,
    )
    attach(bare.model, memory)
    _load(memory, given)
    rows = [Row(list(tokens)) for tokens in job.prompts]
    steps = [_step(bare, memory, rows, job.slots[name])]
    for token in job.decoded:
        for row in rows:
            row.tokens.append(token)
        steps.append(_step(bare, memory, rows, job.slots[name]))
    states, logits = zip(*steps, strict=True)
    return Found([x.tolist() for x in states], [x.tolist() for x in logits])


def _load(memory: LoraMemory, model: Model) -> None:
    """This rank reads the files itself, which in a worker the first one does for all."""
    loader = AdapterLoader(
        memory,
        [memory.layout],
        host_bytes=2**26,
        model_dir=model.directory,
        pace=Pace(shares_cores=False),
    )
    free = iter(range(PAGES))
    for slot, path in enumerate(model.adapters):
        info = loader.check(str(path)).result()
        loader.load(slot, [next(free) for _ in range(info.pages)], info).result()
    loader.close()


@torch.inference_mode()
def _step(
    bare: BareModel, memory: LoraMemory, rows: list[Row], slots: list[int]
) -> tuple[Tensor, Tensor]:
    """Hidden states of all tokens, and logits after the last one of each row."""
    batch: ForwardBatch = with_adapters(
        bare.pages.batch(rows, [row.pending for row in rows]), slots
    )
    memory.step = lora_tokens(batch, memory)
    attention = TorchAttention(bare.pool)
    attention.plan(batch)
    hidden = bare.model(*map(torch.from_numpy, (batch.input_ids, batch.positions)), attention)
    last = batch.extend_lens.cumsum(dtype="int64") - 1
    memory.heads = head_tokens(batch, last, memory)
    logits: Tensor = bare.model.logits(hidden[torch.from_numpy(last)])
    return hidden, logits
