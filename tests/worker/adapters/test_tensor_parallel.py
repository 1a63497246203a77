"""Two ranks with adapters compute what `peft` does; each holds its share of every adapter."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch.distributed as dist

from pando_worker.ranks.group import join
from pando_worker.ranks.leader import LeadingRunner, followers
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.adapters.peft_adapters import BASE, EIGHT, PeftAdapters, Slots, greedy
from tests.worker.model.checkpoints import prompt
from tests.worker.model.conftest import References
from tests.worker.model.paged import Pages

pytestmark = pytest.mark.e2e  # starts processes

NAMES = [BASE, *EIGHT]
PROMPTS = [prompt(4 + 3 * index % 11, seed=index) for index in range(len(NAMES))]
PAGE_SIZE = 4


@contextmanager
def two_ranks(
    settings: WorkerSettings, directory: Path
) -> Iterator[tuple[TorchModelRunner, LeadingRunner]]:
    with followers(settings, directory, logging.basicConfig) as sockets:
        runner = TorchModelRunner(settings, join(settings, 0, directory))
        leading = LeadingRunner(runner, sockets)
        assert runner.adapters is not None
        runner.adapters.send = leading.send_adapter
        try:
            yield runner, leading
        finally:
            dist.destroy_process_group()


@pytest.mark.parametrize("family", ["llama, biases, tied", "phi3", "gemma3"])
def test_two_ranks_compute_what_peft_does(
    family: str, reference_of: References, tmp_path: Path
) -> None:
    """Slots are loaded in the last moment, so that the other rank may have to wait for its share,
    and then loaded with other adapters."""
    adapters = PeftAdapters(reference_of(family), tmp_path / "adapters", EIGHT)
    settings = WorkerSettings(
        model=str(adapters.base.path),
        page_size=PAGE_SIZE,
        max_total_tokens=2048,
        threads=2,
        tensor_parallel_size=2,
        max_loras=8,
        lora_ranks=20 * 16,
    )
    directory = tmp_path / "sockets"
    directory.mkdir()
    with two_ranks(settings, directory) as (runner, leading):
        slots = Slots(runner)
        for order in (list(EIGHT), list(reversed(EIGHT))):
            where = {BASE: -1} | {name: slot for slot, name in enumerate(order)}
            for name in order:
                slots.load(where[name], adapters.paths[name])
            pages = Pages(runner.capacity_tokens // PAGE_SIZE, PAGE_SIZE)
            tokens = greedy(leading, pages, PROMPTS, [where[name] for name in NAMES], 4, 5)
            assert tokens == [
                adapters.greedy(name, tokens, 4)
                for name, tokens in zip(NAMES, PROMPTS, strict=True)
            ]
