"""Copies between the two KV pools, on the CPU: pages come back bit for bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pando_worker.attention.backend import AttentionLayer
from pando_worker.attention.kv_pool import TokenToKVPool
from pando_worker.batch import PageCopies
from pando_worker.models.errors import DoesNotFit
from pando_worker.runner.kv.host_pool import HostBudget, HostKVPool
from pando_worker.runner.kv.page_streams import BUFFERS
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.cuda.fake_gpu.device import FakeGpu
from tests.worker.cuda.fake_gpu.patches import fake_gpus
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.scheduler.world import World

LAYERS = [
    AttentionLayer(index=index, heads=4, kv_heads=heads, head_dim=8, v_head_dim=width, scale=1.0)
    for index, (heads, width) in enumerate([(2, 8), (1, 3), (4, 8)])
]


def copies(device: list[int], host: list[int]) -> PageCopies:
    return PageCopies(device=np.array(device, dtype=np.int32), host=np.array(host, dtype=np.int32))


def pages_of(pool: TokenToKVPool, page_size: int, pages: list[int]) -> list[torch.Tensor]:
    slots = [page * page_size + offset for page in pages for offset in range(page_size)]
    return [part.view(torch.uint8)[slots].clone() for part in (*pool.k, *pool.v)]


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize("staged_pages", [1, 3, 100])
def test_pages_come_back_as_they_were(
    page_size: int, dtype: torch.dtype, staged_pages: int
) -> None:
    pool = TokenToKVPool(LAYERS, 8 * page_size, dtype, torch.device("cpu"))
    for part in (*pool.k, *pool.v):
        part.view(torch.uint8).random_()
    page_bytes = sum(part.nbytes for part in (*pool.k, *pool.v)) // 8
    host = HostKVPool(pool, page_size, 10, staging_bytes=staged_pages * page_bytes)
    assert host.page_bytes == page_bytes
    before = pages_of(pool, page_size, [5, 0, 7, 2])
    untouched = pages_of(pool, page_size, [6])
    host.pages.copy(copies([5, 0, 7, 2], [9, 3, 4, 0]), None)
    for part in (*pool.k, *pool.v):
        part.view(torch.uint8)[: 6 * page_size].zero_()
    # A page is stored, and another is loaded over it, in the same batch.
    host.pages.copy(copies([6], [1]), copies([1, 6, 3, 4, 2], [9, 3, 4, 0, 1]))
    after = pages_of(pool, page_size, [1, 6, 3, 4])
    for was, now in zip(before, after, strict=True):
        assert torch.equal(was, now)
    for was, now in zip(untouched, pages_of(pool, page_size, [2]), strict=True):
        assert torch.equal(was, now)
    assert host.rate.per_second > 0


def test_pages_of_both_kinds_share_the_staging_memory() -> None:
    with fake_gpus(FakeGpu()):
        pool = TokenToKVPool(
            LAYERS,
            64,
            torch.float32,
            torch.device("cuda", 0),
            windowed=frozenset({1}),
            window_slots=32,
        )
        page_bytes = sum(part.nbytes // len(part) for part in (*pool.k, *pool.v)) * 4
        host = HostKVPool(pool, 4, 100, 100, staging_bytes=12 * page_bytes + 100)
        kinds = (host.pages, host.window_pages)
        assert sum(kind.staging_bytes for kind in kinds) == 12 * page_bytes
        few = HostKVPool(pool, 4, 2, 1, staging_bytes=1)
        least = sum(kind.staging_bytes for kind in (few.pages, few.window_pages))
        assert least == BUFFERS * page_bytes


def test_tokens_are_those_of_transformers_when_prompts_come_back_from_the_host(
    tmp_path: Path,
) -> None:
    reference = Reference(tmp_path)
    settings = WorkerSettings(
        model=str(tmp_path), page_size=4, max_total_tokens=64, host_memory_gib=0.001, threads=1
    )
    runner = TorchModelRunner(settings)
    world = World(page_size=4, runner=runner, pools=runner.pools)
    prompts = [prompt(40, seed=seed) for seed in range(3)]
    for turn in range(2):
        for number, tokens in enumerate(prompts):
            world.send(f"{number}.{turn}", tokens, max_new_tokens=4)
            world.run()
            assert world.tokens[f"{number}.{turn}"] == reference.greedy(tokens, 4)
    assert world.scheduler.stats().host_loaded_tokens_total > 0


def test_host_memory_for_less_than_a_page_is_refused(tmp_path: Path) -> None:
    Reference(tmp_path)
    settings = WorkerSettings(model=str(tmp_path), max_total_tokens=64, host_memory_gib=1e-6)
    with pytest.raises(DoesNotFit, match="less than a KV page of 16 tokens"):
        TorchModelRunner(settings)


def test_host_memory_is_shared_by_the_ratio_and_holds_one_window_at_least() -> None:
    def budget(**changes: Any) -> HostBudget:
        fields: dict[str, Any] = {
            "memory_bytes": 1000,
            "page_bytes": 10,
            "window_page_bytes": 30,
            "ratio": 0.5,
            "least_window_pages": 4,
        }
        return HostBudget(**fields | changes)

    assert budget().split() == (40, 20)  # 25 bytes a page with half a window page
    assert budget(ratio=0.05).split() == (86, 4)  # 11.5 bytes: 86, and 4.3
    assert budget(ratio=0.01, least_window_pages=10).split() == (70, 10)
    assert budget(page_bytes=0).split() == (66, 33)
    assert budget(window_page_bytes=0, least_window_pages=0).split() == (100, 0)
    assert budget().least_bytes == 130
