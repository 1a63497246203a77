"""The whole engine on the GPU: random requests with aborts, retraction, a host tier, grammars and
adapters, each answer as transformers and peft give it in float32; and no step waits for the device
before its result is read."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from pando_worker.runner.model_runner import TorchModelRunner
from tests.worker.adapters.peft_adapters import PeftAdapters
from tests.worker.cuda.fake_gpu.engine_world import (
    ADAPTERS,
    ROUNDING_TO_FP8,
    SMALL,
    CheckedRunner,
    settings_for,
    small_reference,
    world_for,
)
from tests.worker.cuda.fake_gpu.random_requests import TOLERANCE, Client
from tests.worker.cuda.kernels.fp8_checkpoints import by_row, in_fp8

STEPS = 400


@contextmanager
def no_waits() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def run(
    model: Path, truth: PeftAdapters, tolerance: float = TOLERANCE, **settings: Any
) -> Counter[str]:
    asked = settings_for(model, **(SMALL | settings))
    runner = TorchModelRunner(asked)
    happened: Counter[str] = Counter()
    for seed in range(2):
        client = Client(
            world_for(asked, runner, CheckedRunner(runner, no_waits)), truth, seed, tolerance
        )
        client.run(STEPS)
        happened += client.happened
    return happened


def test_every_answer_is_right_with_adapters(gpu: torch.device, tmp_path: Path) -> None:
    base = small_reference("llama", tmp_path / "base", num_attention_heads=4)
    truth = PeftAdapters(base, tmp_path, ADAPTERS, dtype=torch.bfloat16, std=0.05)
    happened = run(base.path, truth, max_loras=2, lora_ranks=64)
    events = ("greedy", "drawn", "even", "with adapters", "aborts", "loads", "retractions")
    assert all(happened[event] for event in events), happened


@pytest.mark.parametrize("name", ["gemma2", "qwen3-moe", "olmo2"])
def test_layers_with_windows_and_experts(gpu: torch.device, name: str, tmp_path: Path) -> None:
    base = small_reference(name, tmp_path / "base")
    happened = run(base.path, PeftAdapters(base, tmp_path, {}), window_ratio=0.5)
    assert happened["tokens"] > 500 and happened["retractions"], happened


def test_keys_and_values_in_fp8(gpu: torch.device, tmp_path: Path) -> None:
    base = small_reference("llama", tmp_path / "base", num_attention_heads=2)
    truth = PeftAdapters(base, tmp_path, {})
    happened = run(base.path, truth, ROUNDING_TO_FP8, kv_cache_dtype="fp8_e4m3")
    assert happened["tokens"] > 500, happened


def test_weights_in_fp8(gpu: torch.device, tmp_path: Path) -> None:
    base = small_reference("qwen3-moe", tmp_path / "base", moe_intermediate_size=128)
    served = in_fp8(base.path, tmp_path / "fp8", by_row)
    happened = run(served, PeftAdapters(base, tmp_path, {}), ROUNDING_TO_FP8)
    assert happened["tokens"] > 500, happened
