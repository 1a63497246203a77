"""Every setting of a worker: flags, `PANDO_WORKER_…` variables and the YAML file.

`WorkerSettings` is all of them, with the rules between settings of several files:
    model.py       the model, and how requests to it are read by default
    compute.py     where and with what it is computed
    memory.py      the KV pool, the radix cache, the host tier
    scheduling.py  which requests run in a step
    media.py       the images, videos and files of sound of requests
    adapters.py    LoRA adapters
    serving.py     the fleet, the HTTP server, the end, logs
"""

from typing import Self

from pydantic import model_validator
from pydantic_settings import SettingsConfigDict

from pando_worker.settings.adapters import AdapterSettings
from pando_worker.settings.compute import ComputeSettings
from pando_worker.settings.media import MediaSettings
from pando_worker.settings.memory import MemorySettings
from pando_worker.settings.model import ModelSettings
from pando_worker.settings.scheduling import SchedulingSettings
from pando_worker.settings.serving import ServingSettings


class WorkerSettings(  # the last one's fields come first in `--help` and docs/configuration.md
    ServingSettings,
    AdapterSettings,
    MediaSettings,
    SchedulingSettings,
    MemorySettings,
    ComputeSettings,
    ModelSettings,
):
    """A worker: one model, its HTTP server and its scheduler process."""

    model_config = SettingsConfigDict(env_prefix="PANDO_WORKER_", extra="forbid", frozen=True)

    @model_validator(mode="after")
    def _prefill_holds_a_page(self) -> Self:
        if self.chunked_prefill_size < self.page_size:
            raise ValueError(
                f"chunked_prefill_size ({self.chunked_prefill_size}) must not be below page_size"
                f" ({self.page_size})"
            )
        return self

    @model_validator(mode="after")
    def _experts_are_shared_out(self) -> Self:
        if self.enable_expert_parallel and self.tensor_parallel_size == 1:
            raise ValueError("enable_expert_parallel needs tensor_parallel_size above 1")
        if self.enable_expert_parallel and self.max_loras:
            raise ValueError("enable_expert_parallel does not go with max_loras")
        return self
