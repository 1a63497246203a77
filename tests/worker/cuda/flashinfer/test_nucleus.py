"""Top-p with flashinfer's kernel, written from its documentation, and with the sampler's own."""

import torch

from pando_worker.cuda.nucleus import RadixNucleus
from pando_worker.runner.sampling.ops import SamplingOps
from pando_worker.runner.sampling.sampler import sample
from tests.gpu.test_sampling import ROWS, params
from tests.worker.cuda.flashinfer.by_the_book import ByTheBook


def test_draws_are_those_of_the_sampler_that_sorts() -> None:
    logits = torch.randn(ROWS, 1000, generator=torch.Generator().manual_seed(0)) * 3
    limits = params(ROWS)
    assert 0 < (limits.top_p < 1).sum() < ROWS
    drawn = sample(logits.clone(), limits, SamplingOps(nucleus=RadixNucleus(ByTheBook())))
    assert torch.equal(drawn, sample(logits.clone(), limits))


def test_next_to_nothing_leaves_the_best_token() -> None:
    weights = torch.tensor([[0.5, 1.0, 0.25]])
    assert RadixNucleus(ByTheBook())(weights, torch.tensor([1e-6])).item() == 1.0
