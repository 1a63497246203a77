"""Copies of pages between the GPU and pinned host memory, in parallel with the model's stream."""

import pytest
import torch

from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.runner.kv.host_pool import HostKVPool
from tests.worker.runner.test_host_pool import LAYERS, copies, pages_of


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize("staged_pages", [1, 3, 100])
def test_pages_come_back_as_they_were(
    gpu: torch.device, dtype: torch.dtype, staged_pages: int
) -> None:
    pool = TokenToKVPool(LAYERS, 8 * 16, dtype, gpu)
    for part in (*pool.k, *pool.v):
        part.view(torch.uint8).random_()
    page_bytes = sum(part.nbytes for part in (*pool.k, *pool.v)) // 8
    host = HostKVPool(pool, 16, 10, staging_bytes=staged_pages * page_bytes)
    before = pages_of(pool, 16, [5, 0, 7, 2])
    untouched = pages_of(pool, 16, [6])
    host.pages.copy(copies([5, 0, 7, 2], [9, 3, 4, 0]), None)
    for part in (*pool.k, *pool.v):  # in the model's stream, like the step that reuses the pages
        part.view(torch.uint8)[: 6 * 16].zero_()
    host.pages.copy(copies([6], [1]), copies([1, 6, 3, 4, 2], [9, 3, 4, 0, 1]))
    for layer in LAYERS:
        pool.arrive(layer.index)
    for was, now in zip(before, pages_of(pool, 16, [1, 6, 3, 4]), strict=True):
        assert torch.equal(was, now)
    for was, now in zip(untouched, pages_of(pool, 16, [2]), strict=True):
        assert torch.equal(was, now)
    torch.cuda.synchronize()
    host.pages.copy(None, None)
    assert host.rate.per_second > 0
