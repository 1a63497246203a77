"""The size of the KV pool, computed by hand."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pando_worker.attention.backend import AttentionLayer
from pando_worker.attention.kv_pool import (
    TokenToKVPool,
    kv_cell_bytes,
    windowed_layers,
)
from pando_worker.models.config import read_config
from pando_worker.models.errors import DoesNotFit, UnsupportedModel
from pando_worker.models.loading.building import build_model
from pando_worker.runner.kv.kv_budget import KVBudget, WindowShare
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import Reference
from tests.worker.model.conftest import References


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


def test_what_histories_may_take_is_left_free() -> None:
    # 8,000 bytes are left, of which the pool may have 4,000.
    assert replace(budget(page_size=1), history_bytes=4_000).capacity() == 40
    assert replace(budget(page_size=1), history_bytes=5_000).capacity() == 30
    assert replace(budget(page_size=4), history_bytes=5_000).split(share()) == (40, 20)
    with pytest.raises(DoesNotFit, match=r"0\.0 MiB of it kept free for requests with penalties"):
        replace(budget(), history_bytes=8_000).capacity()


def share(**changes: float) -> WindowShare:
    fields = {"cell_bytes": 60, "ratio": 0.5, "window": 4, "chunk_tokens": 8, "context_length": 900}
    return WindowShare(**fields | changes)  # type: ignore[arg-type]


def test_window_layers_get_their_ratio_of_the_tokens() -> None:
    # 4,000 bytes, 40 per token of the others + half of 60: 57.1 tokens, and half as many.
    assert budget(page_size=1).split(share()) == (57, 28)
    assert budget(page_size=4).split(share()) == (56, 28)
    assert budget(page_size=4, cap=44).split(share()) == (44, 20)


def test_window_layers_get_at_least_what_one_request_needs() -> None:
    # A window of 4, a chunk of 30 and two pages: 42 tokens, 2,520 bytes; 40 per token for the rest.
    assert budget(page_size=4).split(share(chunk_tokens=30, ratio=0.1)) == (0, 0)
    assert budget(page_size=4).split(share(chunk_tokens=10, ratio=0.1)) == (64, 24)


def test_each_pool_has_its_spare_page() -> None:
    # A page of 4 tokens takes 400 of 4,000 bytes; the rest is 51.4 tokens at 70 bytes each.
    spare = replace(budget(page_size=4), spare_pages=1)
    assert spare.split(share()) == (48, 24)


def test_pages_without_other_layers_are_numbers_enough_for_the_longest_request() -> None:
    only = share(cell_bytes=100)
    assert budget(page_size=4).split(only) == (900, 40)
    assert budget(page_size=4).split(share(cell_bytes=100, context_length=50)) == (80, 40)
    assert budget(page_size=4, cap=60).split(only) == (60, 28)


def test_windows_that_hide_nothing_leave_all_layers_in_one_pool() -> None:
    def layer(index: int, window: int | None) -> AttentionLayer:
        return AttentionLayer(
            index=index, heads=1, kv_heads=1, head_dim=8, v_head_dim=8, scale=1.0, window=window
        )

    layers = [layer(0, 16), layer(1, None), layer(2, 64)]
    assert windowed_layers(layers, 64) == {0}
    assert windowed_layers(layers, 65) == {0, 2}
    pool = TokenToKVPool(
        layers,
        40,
        torch.float32,
        torch.device("cpu"),
        windowed=windowed_layers(layers, 64),
        window_slots=24,
    )
    assert [len(tensor) for tensor in (*pool.k, *pool.v)] == [24, 40, 40] * 2
    assert pool.window == 16


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "1 layers with windows up to 6 hold 2048 tokens and release older ones"),
        ({"window_ratio": 1}, None),
        ({"context_length": 6}, None),
        (
            {"chunked_prefill_size": 4096},
            "share the KV pool: a request may need 4110 of its 4096 tokens for them",
        ),
    ],
)
def test_layers_with_a_window_have_their_own_pool_or_the_log_says_why_not(
    reference_of: References,
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, Any],
    told: str | None,
) -> None:
    caplog.set_level(logging.INFO, "pando.worker.runner")
    fields = {"page_size": 4, "max_total_tokens": 4096, "chunked_prefill_size": 64, "threads": 1}
    model = str(reference_of("gemma3").path)
    runner = TorchModelRunner(
        WorkerSettings.model_validate({"model": model, "cpu_kernels": "off", **fields, **settings})
    )
    assert runner.kv_pool.window_slots == (2048 if not settings else 0)
    assert ("window" in caplog.text) == (told is not None)
    assert (told or "") in caplog.text


def test_pool_takes_the_bytes_that_the_cell_size_says(tmp_path: Path) -> None:
    Reference(tmp_path)
    cpu = torch.device("cpu")
    layers = build_model(read_config(tmp_path), torch.bfloat16, cpu).attention_layers
    pool = TokenToKVPool(layers, 48, torch.bfloat16, cpu)
    cell = kv_cell_bytes(layers, torch.bfloat16)
    assert cell == 2 * 2 * 2 * 8 * 2  # layers, K and V, KV heads, head dim, bytes
    assert sum(tensor.nbytes for tensor in (*pool.k, *pool.v)) == 48 * cell


def test_model_that_does_not_fit_is_refused_before_its_weights_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pando")
    Reference(tmp_path)
    with pytest.raises(DoesNotFit):
        TorchModelRunner(WorkerSettings(model=str(tmp_path), memory_gib=1e-6))
    assert "loaded model.safetensors" not in caplog.text
    TorchModelRunner(WorkerSettings(model=str(tmp_path), max_total_tokens=64))
    assert "loaded model.safetensors" in caplog.text


def test_context_length_beyond_the_models_positions_is_refused(tmp_path: Path) -> None:
    Reference(tmp_path)
    with pytest.raises(UnsupportedModel, match="2000 exceeds the 1024 positions"):
        TorchModelRunner(WorkerSettings(model=str(tmp_path), context_length=2000))


def test_host_memory_for_less_than_a_window_is_refused(reference_of: References) -> None:
    settings = WorkerSettings(
        model=str(reference_of("gemma3").path),
        page_size=4,
        max_total_tokens=4096,
        chunked_prefill_size=64,
        host_memory_gib=3e-6,
    )
    with pytest.raises(DoesNotFit, match="4 tokens and the 6 of a window takes: 4096 bytes"):
        TorchModelRunner(settings)
