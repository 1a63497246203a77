"""Draws on the GPU equal the CPU's, and are the same in any batch."""

from importlib import import_module

import numpy as np
import pytest
import torch

from pando_worker.batch import SamplingBatch
from pando_worker.cuda.nucleus import RadixNucleus
from pando_worker.runner.sampling.ops import BY_TORCH, SamplingOps
from pando_worker.runner.sampling.sampler import sample

ROWS, VOCAB = 48, 32_000


def params(rows: int) -> SamplingBatch:
    """Rows of every kind: greedy, plain, and with each of the filters."""
    index = np.arange(rows)
    return SamplingBatch(
        temperature=np.where(index % 4 == 0, 0.0, 0.5 + index / rows).astype(np.float32),
        top_k=np.where(index % 3 == 1, 40, 0).astype(np.int64),
        top_p=np.where(index % 5 == 2, 0.9, 1.0).astype(np.float32),
        min_p=np.where(index % 7 == 3, 0.05, 0.0).astype(np.float32),
        seed=(1000 + index).astype(np.int64),
        step=(3 * index).astype(np.int64),
    )


def one(whole: SamplingBatch, row: int) -> SamplingBatch:
    pick = slice(row, row + 1)
    return SamplingBatch(
        temperature=whole.temperature[pick],
        top_k=whole.top_k[pick],
        top_p=whole.top_p[pick],
        min_p=whole.min_p[pick],
        seed=whole.seed[pick],
        step=whole.step[pick],
    )


@pytest.fixture(params=["sorted", "flashinfer", "one kernel"])
def ops(request: pytest.FixtureRequest) -> SamplingOps:
    match request.param:
        case "flashinfer":
            return SamplingOps(nucleus=RadixNucleus())
        case "one kernel":
            return SamplingOps(draw=import_module("pando_worker.cuda.sampling").draw_tokens)
    return BY_TORCH


def test_draws_are_the_cpus_but_for_rounding_at_the_borders(
    gpu: torch.device, ops: SamplingOps
) -> None:
    logits = torch.randn(ROWS, VOCAB, generator=torch.Generator().manual_seed(0)) * 3
    here = sample(logits, params(ROWS))
    there = sample(logits.to(gpu), params(ROWS), ops).cpu()
    assert (here == there).float().mean() >= 0.95


def test_a_row_draws_the_same_alone_as_in_a_batch_and_again(
    gpu: torch.device, ops: SamplingOps
) -> None:
    logits = (torch.randn(ROWS, VOCAB, generator=torch.Generator().manual_seed(1)) * 3).to(gpu)
    whole = params(ROWS)
    drawn = sample(logits.clone(), whole, ops)
    assert torch.equal(drawn, sample(logits.clone(), whole, ops))
    for row in range(ROWS):
        alone = sample(logits[row : row + 1].clone(), one(whole, row), ops)
        assert alone.item() == drawn[row].item()
