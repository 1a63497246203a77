"""Models and a scheduler for engines on a GPU, a fake or a real one."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pando_worker.batch import ForwardBatch, Int32, Step, StepResult
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import Reference
from tests.worker.model.families import FAMILIES
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
ADAPTERS: dict[str, dict[str, Any]] = {
    "rank 8": {"r": 8, "lora_alpha": 16},
    "rank 17": {"r": 17, "lora_alpha": 5},
    "attention": {"r": 6, "target_modules": ["o_proj"]},
}
ROUNDING_TO_FP8 = 0.6  # in log-probabilities


@dataclass(frozen=True)
class CheckedRunner:
    """A runner that may not wait for the device before a step's result is read.

    Attributes:
        no_waits: within it, to wait is an error
    """

    runner: Any
    no_waits: Callable[[], AbstractContextManager[None]]

    def launch(self, batch: ForwardBatch) -> "_CheckedStep":
        with self.no_waits():
            return _CheckedStep(self.runner.launch(batch), self.no_waits)


@dataclass(frozen=True)
class _CheckedStep:
    step: Step
    no_waits: Callable[[], AbstractContextManager[None]]

    def sample(self, mask: Int32 | None) -> None:
        with self.no_waits():
            self.step.sample(mask)

    def result(self) -> StepResult:
        return self.step.result()


def small_reference(name: str, folder: Path, **fields: Any) -> Reference:
    """A family's model with heads that flashinfer has kernels for."""
    case = FAMILIES[name]
    fields = case.fields | {"hidden_size": 128, "head_dim": 64} | fields
    if "num_experts_per_tok" in fields:
        # All experts, as rounding to bfloat16 would decide between two that are nearly equal.
        fields["num_experts_per_tok"] = fields["num_experts"]
    return Reference(folder, config_type=case.config_type, dtype=torch.bfloat16, std=0.08, **fields)


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
