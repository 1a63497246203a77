"""Two GPUs that share a model: NCCL collectives, also inside CUDA graphs."""

import multiprocessing
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from pando_worker.models.parallel import join_group
from pando_worker.runner.cuda.cuda_graph import CudaGraphRunner
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.paged import Pages, Row

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")

PROMPTS = [prompt(length, seed=length) for length in (1, 9, 40)]
STEPS = 5


def _rank(rank: int, size: int, model: Path, meeting: Path, results: Connection) -> None:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    group = join_group(rank, size, f"file://{meeting}", device, timedelta(minutes=10))
    settings = WorkerSettings(
        model=str(model),
        device="cuda",
        tensor_parallel_size=size,
        max_total_tokens=2048,
        cuda_graph_max_batch=4,
        cuda_graph_max_tokens=64,
    )
    runner = TorchModelRunner(settings, group)
    assert isinstance(runner.graphs, CudaGraphRunner)
    pages = Pages(runner.capacity_tokens // settings.page_size, settings.page_size)
    rows = [Row(list(tokens)) for tokens in PROMPTS]
    logits = []
    for step in range(STEPS):
        logits.append(runner.logits(pages.batch(rows, [row.pending for row in rows])).cpu())
        for row in rows:
            row.tokens.append(5 + step)
    results.send(torch.stack(logits).numpy())


def run(size: int, model: Path, meeting: Path) -> list[Any]:
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(size)]
    ranks = [
        context.Process(target=_rank, args=(rank, size, model, meeting, pipe[1]), daemon=True)
        for rank, pipe in enumerate(pipes)
    ]
    for process in ranks:
        process.start()
    for _, theirs in pipes:
        theirs.close()
    found = [mine.recv() for mine, _ in pipes]
    for process in ranks:
        process.join()
    return found


def test_two_ranks_compute_what_one_does(tmp_path: Path) -> None:
    model = tmp_path / "model"
    Reference(model, dtype=torch.bfloat16, std=0.08, hidden_size=256, head_dim=64)
    [alone] = run(1, model, tmp_path / "one")
    first, second = (torch.from_numpy(found) for found in run(2, model, tmp_path / "two"))
    assert torch.equal(first, second)
    expected = torch.from_numpy(alone)
    torch.testing.assert_close(first, expected, atol=0.05 * float(expected.std()), rtol=0.05)
