"""A scheduler for a model runner on a GPU, a fake or a real one."""

from typing import Any

from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.scheduler.world import World

PAGE_SIZE = 4
# A pool and slots so small that requests are retracted and prefixes go to the host.
SMALL: dict[str, Any] = {
    "max_total_tokens": 144,
    "context_length": 96,
    "max_running_requests": 6,
    "cuda_graph_max_batch": 4,
    "cuda_graph_max_tokens": 20,
    "chunked_prefill_size": 16,
    "host_memory_gib": 2e-4,
}


def settings_for(model: object, **settings: Any) -> WorkerSettings:
    return WorkerSettings(
        model=str(model), device="cuda", page_size=PAGE_SIZE, threads=1, **settings
    )


def world_for(settings: WorkerSettings, runner: TorchModelRunner, checked: Any) -> World:
    """
    Args:
        checked: what the scheduler launches steps with
    """
    names = ("chunked_prefill_size", "schedule_policy", "batching", "host_write")
    return World(
        page_size=PAGE_SIZE,
        new_token_ratio=0.02,
        watermark=0,
        max_queued_requests=500,
        max_running=settings.max_running_requests,
        runner=checked,
        pools=runner.pools,
        adapters=runner.adapters,  # type: ignore[arg-type]
        **{name: getattr(settings, name) for name in names},
    )
