"""Two ranks with adapters compute what `peft` does; each holds its share of every adapter."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from pando_worker.ranks.group import join
from pando_worker.ranks.leader import LeadingRunner, followers
from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.settings import WorkerSettings
from tests.worker.adapters.conftest import LATENT, WITH_EXPERTS
from tests.worker.adapters.peft_adapters import BASE, EIGHT, PeftAdapters, Slots, greedy
from tests.worker.adapters.ranks import Job, Model, run_ranks
from tests.worker.model.checkpoints import prompt
from tests.worker.model.conftest import References
from tests.worker.model.families import FAMILIES
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


def test_two_ranks_compute_what_peft_does(reference_of: References, tmp_path: Path) -> None:
    """Slots are loaded in the last moment, so that the other rank may have to wait for its share,
    and then loaded with other adapters."""
    adapters = PeftAdapters(reference_of("phi3"), tmp_path / "adapters", EIGHT)
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
            found = greedy(leading, pages, PROMPTS, [where[name] for name in NAMES], 4, 5)
            assert found == [
                adapters.best_after(*each) for each in zip(NAMES, PROMPTS, found, strict=True)
            ]


@pytest.mark.long
def test_two_ranks_have_the_logits_of_peft(reference_of: References, tmp_path: Path) -> None:
    """Families that take adapters, of all that they have: linear layers, experts and routers,
    the embedding and the head, and whole tables."""
    names = [name for name in FAMILIES if name not in LATENT]
    made = {name: _adapters_of(name, reference_of, tmp_path) for name in names}
    slots = {
        name: [-1, *range(len(adapters.paths)), 0][: len(PROMPTS)]
        for name, adapters in made.items()
    }
    job = Job(
        models={
            name: Model(
                adapters.base.path, adapters.base.context_length, list(adapters.paths.values())
            )
            for name, adapters in made.items()
        },
        prompts=PROMPTS[:6],
        decoded=[5, 17],
        slots={name: (each * 2)[:6] for name, each in slots.items()},
        meeting=tmp_path / "meeting",
    )
    first, second = run_ranks(job, 2)
    for family, adapters in made.items():
        names = list(adapters.paths)
        for step, logits in enumerate(first[family].logits):
            decoded = list(job.decoded[:step])
            expected = [
                adapters.all_logits(BASE if slot < 0 else names[slot], tokens + decoded)[-1]
                for slot, tokens in zip(job.slots[family], job.prompts, strict=True)
            ]
            torch.testing.assert_close(
                torch.tensor(logits),
                torch.stack(expected),
                atol=5e-4,
                rtol=5e-4,
                msg=partial("{}: {}".format, family),
            )
        assert first[family].hidden == second[family].hidden, "ranks must agree to the last bit"


def _adapters_of(family: str, reference_of: References, folder: Path) -> PeftAdapters:
    fields: dict[str, dict[str, Any]] = {
        "all": {"r": 9},
        "tables": {"r": 3, "target_modules": ["embed_tokens", "lm_head", "o_proj"]},
        "whole": {"target_modules": ["o_proj"], "modules_to_save": ["embed_tokens", "lm_head"]},
    }
    if family in WITH_EXPERTS:
        router = "router.weight" if family == "gpt-oss" else "gate.weight"
        parameters = ["experts.gate_up_proj", "experts.down_proj", router]
        fields["experts"] = {"r": 3, "target_modules": [], "target_parameters": parameters}
    name = family.replace(" ", "-").replace(",", "")
    return PeftAdapters(reference_of(family), folder / name, fields)
