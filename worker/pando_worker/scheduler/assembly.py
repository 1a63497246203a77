"""Builds a scheduler around a loaded model."""

import time
from collections.abc import Callable

from pando_worker.batch import Adapters, ModelRunner
from pando_worker.memory.adapter_slots import AdapterSlots
from pando_worker.memory.window_sight import WindowMemory
from pando_worker.pools import Pools
from pando_worker.scheduler.adapters.served import ServedAdapters
from pando_worker.scheduler.batches.batching import BatchBuilder, Batches
from pando_worker.scheduler.batches.changed_pages import ChangedPages
from pando_worker.scheduler.batches.constrained import OutputGrammarCompiler
from pando_worker.scheduler.images import Images
from pando_worker.scheduler.pages.kv_manager import HostMemory, KVManager
from pando_worker.scheduler.scheduler import Scheduler
from pando_worker.settings import WorkerSettings


def make_scheduler(
    settings: WorkerSettings,
    pools: Pools,
    runner: ModelRunner,
    grammars: OutputGrammarCompiler | None = None,
    clock: Callable[[], float] = time.monotonic,
    batches: BatchBuilder | None = None,
    adapters: Adapters | None = None,
) -> Scheduler:
    """
    Args:
        runner: launches the batches: the model that owns the pools, or a wrapper around it.
        grammars: None rejects requests that carry one.
        clock: seconds.
        batches: makes the runner's batches; a runner that computes nothing needs no arrays.
        adapters: loads them; None rejects requests that name one.
    """
    kv = KVManager(
        capacity_tokens=pools.capacity_tokens,
        page_size=settings.page_size,
        max_running_requests=settings.max_running_requests,
        max_request_tokens=pools.context_length,
        radix_cache=settings.radix_cache,
        whole_prompts=pools.whole_prompts,
        eviction_policy=settings.eviction_policy,
        host=_host_memory(settings, pools),
        windows=_window_memory(settings, pools),
        source_positions=pools.source.positions if pools.source else 0,
    )
    images = None
    if pools.image_tokens:
        images = Images(
            page_size=settings.page_size,
            kept_tokens=pools.image_tokens,
            tokens_per_step=settings.image_tokens_per_step,
            are_whole=pools.whole_image_tokens > 0,
        )
    served = None
    if adapters and pools.adapter_slots:
        slots = AdapterSlots(pools.adapter_slots, pools.adapter_pages)
        served = ServedAdapters(slots, adapters, clock)
    if batches is None:
        changes = ChangedPages(kv.rows, kv.windows) if pools.keeps_tables else None
        batches = Batches(kv.rows, kv.windows, changes)
    scheduler = Scheduler(
        settings, kv, runner, batches, grammars, clock, images, served, pools.source
    )
    scheduler.meter.counts.weight_bytes = pools.weight_bytes
    return scheduler


def _window_memory(settings: WorkerSettings, pools: Pools) -> WindowMemory | None:
    if pools.window == 0:
        return None
    return WindowMemory(
        pages=pools.window_pages,
        window=pools.window,
        chunk_tokens=max(settings.chunked_prefill_size, pools.whole_image_tokens),
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
