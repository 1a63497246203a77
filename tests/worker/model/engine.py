"""A whole engine with a tiny model and so few pages that its requests retract each other."""

from pathlib import Path
from typing import Any

import torch

from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.runner.threaded import ThreadedRunner
from pando_worker.settings import WorkerSettings
from tests.worker.scheduler.world import World

PAGES, PAGE_SIZE = 14, 4


def engine(
    model: Path, context_length: int | None = None, pages: int = PAGES, **changes: Any
) -> World:
    settings = WorkerSettings(
        model=str(model),
        page_size=PAGE_SIZE,
        max_total_tokens=pages * PAGE_SIZE,
        context_length=context_length,
        threads=1,
        cpu_kernels=changes.pop("cpu_kernels", "off"),
        chunked_prefill_size=8,
        **changes,
    )
    runner = TorchModelRunner(settings)
    for tensor in (*runner.kv_pool.k, *runner.kv_pool.v):
        tensor[PAGE_SIZE:] = torch.nan  # unwritten memory; a trial has used the first page
    policy = {name: changes[name] for name in ("host_write",) if name in changes}
    return World(
        page_size=PAGE_SIZE,
        chunked_prefill_size=8,
        new_token_ratio=0.01,
        watermark=0,
        runner=ThreadedRunner(runner),
        pools=runner.pools,
        **policy,
    )
