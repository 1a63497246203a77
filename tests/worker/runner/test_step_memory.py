"""The KV pool gets the memory that the largest steps leave: they are run, and no step of requests
holds more. On the CPU, where a count of living tensors stands for a GPU's."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pando_worker.cuda.device import most_bytes
from pando_worker.cuda.nucleus import RadixNucleus
from pando_worker.models.parallel import ParallelGroup
from pando_worker.runner import model_runner
from pando_worker.runner.loading import LoadedModel, load_model
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.runner.sampling.ops import SamplingOps
from pando_worker.runner.step_memory import LargestSteps
from pando_worker.settings import WorkerSettings
from tests.worker.cuda.flashinfer.by_the_book import ByTheBook
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.families import FAMILIES
from tests.worker.runner.live_memory import peak_bytes
from tests.worker.scheduler.world import World

PAGE, ROWS, CHUNK = 4, 6, 24


def settings_for(directory: Path, **fields: Any) -> WorkerSettings:
    return WorkerSettings(
        model=str(directory),
        memory_gib=8 * 2**20 / 2**30,
        page_size=PAGE,
        max_running_requests=ROWS,
        chunked_prefill_size=CHUNK,
        context_length=96,
        cpu_kernels="off",
        threads=1,
        **fields,
    )


def sized(directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[LoadedModel, LoadedModel]:
    """A model with a pool for trials, as on a GPU, and with the pool that follows from them."""
    settings = settings_for(directory)
    monkeypatch.setattr(model_runner, "most_bytes", lambda run, device: peak_bytes(run))
    loaded = load_model(settings, ParallelGroup())
    trial = loaded.with_pool(loaded.plan.for_trial(loaded.steps.pool_tokens))
    runner = TorchModelRunner(settings)
    return trial, runner._with_sized_pool(settings, trial)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_the_pool_gets_its_fraction_of_what_weights_and_steps_leave(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = FAMILIES[family]
    Reference(tmp_path, config_type=case.config_type, **case.fields)
    trial, loaded = sized(tmp_path, monkeypatch)
    assert trial.capacity_tokens <= trial.steps.pool_tokens + PAGE < loaded.capacity_tokens
    assert all(part.untyped_storage().nbytes() == 0 for part in trial.kv_pool.k)
    taken = loaded.plan.budget.step_bytes
    assert taken > 0
    left = 8 * 2**20 - loaded.weight_bytes - taken
    pool = sum(part.nbytes for part in (*loaded.kv_pool.k, *loaded.kv_pool.v))
    fraction = loaded.plan.budget.mem_fraction_static
    page = PAGE * loaded.plan.budget.cell_bytes
    assert fraction * left - 2 * page < pool <= fraction * left


def test_no_step_of_requests_holds_more_than_the_largest_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Reference(tmp_path)
    _, loaded = sized(tmp_path, monkeypatch)
    runner = TorchModelRunner(settings_for(tmp_path))
    world = World(
        page_size=PAGE,
        runner=runner,
        pools=runner.pools,
        chunked_prefill_size=CHUNK,
        max_running=ROWS,
    )
    random = np.random.default_rng(0)
    for number in range(20):
        length = int(random.integers(1, 80))
        world.send(f"{number}", prompt(length, seed=number), max_new_tokens=12)
    held = peak_bytes(world.run)
    assert 0.2 * loaded.plan.budget.step_bytes < held <= loaded.plan.budget.step_bytes


def test_steps_write_to_different_slots_of_a_pool_that_holds_little_more() -> None:
    steps = LargestSteps(
        rows=5, chunk_tokens=30, longest=100, capacity_tokens=240, page_size=8, vocab_size=70
    )
    pages = -(-steps.pool_tokens // 8)
    chunk, decodes = steps.batches(pages, window_pages=3)
    assert chunk.extend_lens.tolist() == [1, 1, 1, 1, 30]  # decodes first, as flashinfer needs
    assert chunk.seq_lens[-1] == 100
    assert len(set(chunk.out_slots[-30:].tolist())) == 30
    assert decodes.seq_lens.tolist() == [48] * 5
    for batch in (chunk, decodes):
        assert batch.page_table.max() < pages
        assert batch.window_table is not None and batch.window_table.max() < 3
        assert len({row[0] for row in batch.page_table.tolist()}) == 5
        assert batch.out_slots.max() < pages * 8
    assert steps.mask.shape == (5, 3)


def test_top_p_is_searched_as_wide_as_in_service(tmp_path: Path) -> None:
    """flashinfer has one kernel for up to 2,048 tokens and another for more."""
    Reference(tmp_path)
    runner = TorchModelRunner(settings_for(tmp_path))
    widths: list[int] = []
    search = RadixNucleus(ByTheBook())

    def noted(weights: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        widths.append(weights.shape[1])
        return search(weights, shares)

    runner._sampling_ops = SamplingOps(nucleus=noted)
    runner.run_trial(load_model(settings_for(tmp_path), ParallelGroup()).steps)
    tried = set(widths)
    widths.clear()
    world = World(page_size=PAGE, runner=runner, pools=runner.pools)
    world.send("r", prompt(5), max_new_tokens=3, temperature=1.0, top_p=0.9)
    world.run()
    assert set(widths) == tried != set()


def test_memory_is_torchs_and_what_others_take(monkeypatch: pytest.MonkeyPatch) -> None:
    at = SimpleNamespace(free=100, reserved=10, allocated=5, peak=0)
    fakes = {
        "mem_get_info": lambda device: (at.free, 200),
        "memory_reserved": lambda device: at.reserved,
        "memory_allocated": lambda device: at.allocated,
        "max_memory_allocated": lambda device: at.peak,
        "reset_peak_memory_stats": lambda device: None,
        "synchronize": lambda device: None,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)

    def run() -> None:  # torch reserves 30 more and holds 25 at most; a library takes 7
        at.free, at.reserved, at.peak, at.allocated = 63, 40, 30, 9

    assert most_bytes(run, torch.device("cuda")) == 25 + 7
