"""Puts a scheduler together around a model that is loaded."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pando_worker.batch import ModelRunner
from pando_worker.memory.window_sight import WindowMemory
from pando_worker.rates import Rate
from pando_worker.scheduler.batching import BatchBuilder, build_batch
from pando_worker.scheduler.constrained import GrammarCompiler
from pando_worker.scheduler.kv_manager import HostMemory, KVManager
from pando_worker.scheduler.scheduler import Scheduler
from pando_worker.settings import WorkerSettings

if TYPE_CHECKING:  # it imports torch
    from pando_worker.runner.model_runner import TorchModelRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """What a model's memory has for its scheduler to give out. Pages are of the setting's size."""

    capacity_tokens: int
    context_length: int  # tokens that a request may have
    window: int = 0  # of the layers that release pages behind it; 0 where all share one pool
    window_pages: int = 0
    host_pages: int = 0  # 0 where there is no host tier
    host_window_pages: int = 0
    host_page_bytes: int = 0  # of a page of all layers
    copy_rate: Rate = field(default_factory=Rate)  # bytes to and from the host, as measured


def pools_of(model: "TorchModelRunner", page_size: int) -> Pools:
    kv, host = model.kv_pool, model.host_pool
    return Pools(
        capacity_tokens=model.capacity_tokens,
        context_length=model.context_length,
        window=kv.window,
        window_pages=kv.window_slots // page_size,
        host_pages=host.num_pages,
        host_window_pages=host.num_window_pages,
        host_page_bytes=host.page_bytes,
        copy_rate=host.rate,
    )


def make_scheduler(
    settings: WorkerSettings,
    pools: Pools,
    runner: ModelRunner,
    grammars: GrammarCompiler | None = None,
    clock: Callable[[], float] = time.monotonic,
    build: BatchBuilder = build_batch,
) -> Scheduler:
    """
    Args:
        runner: what batches are launched on, the model that has the pools or something around it.
        grammars: None refuses requests that come with one.
        clock: seconds.
        build: as for the `Scheduler`.
    """
    kv = KVManager(
        capacity_tokens=pools.capacity_tokens,
        page_size=settings.page_size,
        max_running_requests=settings.max_running_requests,
        max_request_tokens=pools.context_length,
        radix_cache=settings.radix_cache,
        eviction_policy=settings.eviction_policy,
        host=_host_memory(settings, pools),
        windows=_window_memory(settings, pools),
    )
    return Scheduler(settings, kv, runner, grammars, clock, build)


def _window_memory(settings: WorkerSettings, pools: Pools) -> WindowMemory | None:
    if pools.window == 0:
        return None
    return WindowMemory(
        pages=pools.window_pages, window=pools.window, chunk_tokens=settings.chunked_prefill_size
    )


def _host_memory(settings: WorkerSettings, pools: Pools) -> HostMemory | None:
    if pools.host_pages == 0:
        return None
    return HostMemory(
        pages=pools.host_pages,
        window_pages=pools.host_window_pages,
        write=settings.host_write,
        bytes_per_token=pools.host_page_bytes // settings.page_size,
        copy_rate=pools.copy_rate,
    )
