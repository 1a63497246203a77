"""The whole engine on the GPU: random requests with aborts, retraction, a host tier, grammars and
adapters, each answer as transformers and peft give it in float32; and no step waits for the device
before its result is read."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from pando_worker.batch import ForwardBatch, Int32, Step, StepResult
from pando_worker.runner.model_runner import TorchModelRunner
from tests.worker.adapters.peft_adapters import PeftAdapters
from tests.worker.cuda.engine_world import SMALL, settings_for, world_for
from tests.worker.cuda.fp8_checkpoints import by_row, in_fp8
from tests.worker.cuda.random_requests import TOLERANCE, Client
from tests.worker.model.checkpoints import Reference
from tests.worker.model.families import FAMILIES

STEPS = 400
ROUNDING_TO_FP8 = 0.6  # in log-probabilities
ADAPTERS: dict[str, dict[str, Any]] = {
    "rank 8": {"r": 8, "lora_alpha": 16},
    "rank 17": {"r": 17, "lora_alpha": 5},
    "attention": {"r": 6, "target_modules": ["o_proj"]},
}


@contextmanager
def no_waits() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@dataclass(frozen=True)
class CheckedRunner:
    """torch raises an error where launching a step waits for the device."""

    runner: TorchModelRunner

    def launch(self, batch: ForwardBatch) -> "_CheckedStep":
        with no_waits():
            return _CheckedStep(self.runner.launch(batch))


@dataclass(frozen=True)
class _CheckedStep:
    step: Step

    def sample(self, mask: Int32 | None) -> None:
        with no_waits():
            self.step.sample(mask)

    def result(self) -> StepResult:
        return self.step.result()


def run(
    model: Path, truth: PeftAdapters, tolerance: float = TOLERANCE, **settings: Any
) -> Counter[str]:
    asked = settings_for(model, **(SMALL | settings))
    runner = TorchModelRunner(asked)
    happened: Counter[str] = Counter()
    for seed in range(2):
        client = Client(world_for(asked, runner, CheckedRunner(runner)), truth, seed, tolerance)
        client.run(STEPS)
        happened += client.happened
    return happened


def reference(name: str, folder: Path, **fields: Any) -> Reference:
    case = FAMILIES[name]
    fields = case.fields | {"hidden_size": 128, "head_dim": 64} | fields
    if "num_experts_per_tok" in fields:
        # All experts, as rounding to bfloat16 would decide between two that are nearly equal.
        fields["num_experts_per_tok"] = fields["num_experts"]
    return Reference(folder, config_type=case.config_type, dtype=torch.bfloat16, std=0.08, **fields)


def test_every_answer_is_right_with_adapters(gpu: torch.device, tmp_path: Path) -> None:
    base = reference("llama", tmp_path / "base", num_attention_heads=4)
    truth = PeftAdapters(base, tmp_path, ADAPTERS, dtype=torch.bfloat16, std=0.05)
    happened = run(base.path, truth, max_loras=2, lora_ranks=64)
    events = ("greedy", "drawn", "even", "with adapters", "aborts", "loads", "retractions")
    assert all(happened[event] for event in events), happened


@pytest.mark.parametrize("name", ["gemma2", "qwen3-moe", "olmo2"])
def test_layers_with_windows_and_experts(gpu: torch.device, name: str, tmp_path: Path) -> None:
    base = reference(name, tmp_path / "base")
    happened = run(base.path, PeftAdapters(base, tmp_path, {}), window_ratio=0.5)
    assert happened["tokens"] > 500 and happened["retractions"], happened


def test_keys_and_values_in_fp8(gpu: torch.device, tmp_path: Path) -> None:
    base = reference("llama", tmp_path / "base", num_attention_heads=2)
    truth = PeftAdapters(base, tmp_path, {})
    happened = run(base.path, truth, ROUNDING_TO_FP8, kv_cache_dtype="fp8_e4m3")
    assert happened["tokens"] > 500, happened


def test_weights_in_fp8(gpu: torch.device, tmp_path: Path) -> None:
    base = reference("qwen3-moe", tmp_path / "base", moe_intermediate_size=128)
    served = in_fp8(base.path, tmp_path / "fp8", by_row)
    happened = run(served, PeftAdapters(base, tmp_path, {}), ROUNDING_TO_FP8)
    assert happened["tokens"] > 500, happened
