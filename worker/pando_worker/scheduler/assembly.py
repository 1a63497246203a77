"""Puts a scheduler together around a model that is loaded."""

from typing import TYPE_CHECKING

from pando_worker.memory.window_sight import WindowMemory
from pando_worker.runner.batch import ModelRunner
from pando_worker.scheduler.constrained import GrammarCompiler
from pando_worker.scheduler.kv_manager import HostMemory, KVManager
from pando_worker.scheduler.scheduler import Scheduler
from pando_worker.settings import WorkerSettings

if TYPE_CHECKING:  # it imports torch
    from pando_worker.runner.model_runner import TorchModelRunner


def make_scheduler(
    settings: WorkerSettings,
    model: "TorchModelRunner",
    runner: ModelRunner,
    grammars: GrammarCompiler | None = None,
) -> Scheduler:
    """
    Args:
        model: has the pools that the scheduler gives the pages of.
        runner: what batches are launched on, the model or something around it.
    """
    kv = KVManager(
        capacity_tokens=model.capacity_tokens,
        page_size=settings.page_size,
        max_running_requests=settings.max_running_requests,
        max_request_tokens=model.context_length,
        radix_cache=settings.radix_cache,
        eviction_policy=settings.eviction_policy,
        host=host_memory(settings, model),
        windows=window_memory(settings, model),
    )
    return Scheduler(settings, kv, runner, grammars)


def window_memory(settings: WorkerSettings, model: "TorchModelRunner") -> WindowMemory | None:
    """What window layers have to work with; None where all layers share one pool."""
    pool = model.kv_pool
    if not pool.windowed:
        return None
    return WindowMemory(
        pages=pool.window_slots // settings.page_size,
        window=pool.window,
        chunk_tokens=settings.chunked_prefill_size,
    )


def host_memory(settings: WorkerSettings, model: "TorchModelRunner") -> HostMemory | None:
    """What the host tier has to work with; None where there is none."""
    pool = model.host_pool
    if pool.num_pages == 0:
        return None
    return HostMemory(
        pages=pool.num_pages,
        window_pages=pool.num_window_pages,
        write=settings.host_write,
        bytes_per_token=pool.page_bytes // settings.page_size,
        copy_rate=pool.rate,
    )
