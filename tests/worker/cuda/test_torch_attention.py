"""Torch's attention on a GPU, which models run on that flashinfer has no kernels for."""

import pytest
import torch

from pando_worker.attention.torch_backend import TorchAttention
from tests.worker.cuda.fake_gpu.device import FakeGpu
from tests.worker.cuda.fake_gpu.patches import fake_gpus
from tests.worker.cuda.flashinfer.attention_cases import (
    BATCHES,
    KINDS,
    assert_brute_force,
    layers_of,
    pool_for,
)
from tests.worker.model.test_attention import case

GPU = torch.device("cuda", 0)
# Of these rows the longest one's keys are a multiple of 16, so masks have rows that are aligned.
LONG = [(0, 32), (5, 27), (3, 9)]


@pytest.mark.parametrize("rows", [*BATCHES, LONG])
def test_masks_are_where_the_kernel_can_read_them(rows: list[tuple[int, int]]) -> None:
    with fake_gpus(FakeGpu()), torch.inference_mode():
        made = case(rows, 16)
        pool = pool_for(layers_of(KINDS, GPU), made.slots, 16, torch.bfloat16, GPU)
        attention = TorchAttention(pool, torch.bfloat16)
        attention.plan(made.batch)
        assert_brute_force(attention, pool, made.batch, made.slots, atol=2e-2)
