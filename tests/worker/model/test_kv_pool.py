"""The size of the KV pool, worked out by hand."""

from pathlib import Path

import pytest
import torch

from pando_worker.memory.kv_pool import KVBudget, TokenToKVPool, kv_cell_bytes
from pando_worker.models.config import read_config
from pando_worker.models.errors import DoesNotFit, UnsupportedModel
from pando_worker.models.loader import build_model
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import Reference


def budget(
    memory: int = 10_000, weights: int = 2_000, page_size: int = 16, cap: int | None = None
) -> KVBudget:
    return KVBudget(
        memory_bytes=memory,
        weight_bytes=weights,
        mem_fraction_static=0.5,
        cell_bytes=100,
        page_size=page_size,
        max_total_tokens=cap,
    )


def test_capacity_is_the_fraction_of_what_the_weights_leave() -> None:
    assert budget(page_size=1).capacity() == 40  # (10,000 - 2,000) / 2 / 100


def test_capacity_is_whole_pages() -> None:
    assert budget(page_size=16).capacity() == 32


def test_max_total_tokens_caps_and_never_raises_the_capacity() -> None:
    assert budget(cap=31).capacity() == 16
    assert budget(cap=1_000).capacity() == 32


@pytest.mark.parametrize(
    "too_small",
    [budget(weights=10_000), budget(weights=20_000), budget(page_size=41), budget(cap=15)],
)
def test_less_than_a_page_does_not_fit_and_the_error_says_why(too_small: KVBudget) -> None:
    with pytest.raises(DoesNotFit, match=r"no room for a KV page of \d+ tokens: weights .* MiB"):
        too_small.capacity()


def test_pool_takes_the_bytes_that_the_cell_size_says(tmp_path: Path) -> None:
    Reference(tmp_path)
    cpu = torch.device("cpu")
    layers = build_model(read_config(tmp_path), torch.bfloat16, cpu).attention_layers
    pool = TokenToKVPool(layers, 48, torch.bfloat16, cpu)
    cell = kv_cell_bytes(layers, torch.bfloat16)
    assert cell == 2 * 2 * 2 * 8 * 2  # layers, K and V, KV heads, head dim, bytes
    assert sum(tensor.nbytes for tensor in (*pool.k, *pool.v)) == 48 * cell


def test_model_that_does_not_fit_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    Reference(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(DoesNotFit):
        TorchModelRunner(WorkerSettings(model=str(tmp_path), memory_gib=1e-6))


def test_context_length_beyond_the_models_positions_is_refused(tmp_path: Path) -> None:
    Reference(tmp_path)
    with pytest.raises(UnsupportedModel, match="2000 exceeds the 1024 positions"):
        TorchModelRunner(WorkerSettings(model=str(tmp_path), context_length=2000))
