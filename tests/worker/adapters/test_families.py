"""Batches of eight adapters and the base, compared with `peft` on transformers, for each family."""

from typing import Any

import pytest

from tests.worker.adapters.peft_adapters import (
    BASE,
    EIGHT,
    PeftAdapters,
    Slots,
    assert_logits,
    greedy,
)
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.model.paged import Paged

NAMES = [BASE, *EIGHT, BASE, "rank 16"]
PROMPTS = [prompt(5 + 3 * index % 14, seed=index) for index in range(len(NAMES))]
LORA: dict[str, Any] = {"max_loras": 8, "max_lora_rank": 64, "lora_ranks": 12 * 16}


@pytest.fixture(scope="module")
def adapters(family: Reference, tmp_path_factory: pytest.TempPathFactory) -> PeftAdapters:
    return PeftAdapters(family, tmp_path_factory.mktemp("adapters"), EIGHT)


def serve(adapters: PeftAdapters, cpu_kernels: str = "off") -> tuple[Paged, list[int]]:
    """A runner with all adapters in slots, and the slots of NAMES."""
    paged = Paged(
        adapters.base.path,
        context_length=adapters.base.context_length,
        cpu_kernels=cpu_kernels,
        **LORA,
    )
    slots = Slots(paged.runner)
    where = {BASE: -1} | {name: 7 - index for index, name in enumerate(EIGHT)}
    for name, path in adapters.paths.items():
        slots.load(where[name], path)
    return paged, [where[name] for name in NAMES]


@pytest.mark.parametrize("cpu_kernels", ["off", "on"])
def test_a_mixed_batch_has_the_logits_of_peft(adapters: PeftAdapters, cpu_kernels: str) -> None:
    """For a prefill, and for decodes after it."""
    paged, slots = serve(adapters, cpu_kernels)
    assert_logits(paged, slots, adapters, NAMES, PROMPTS, steps=4, tolerance=3e-4)


@pytest.mark.parametrize("chunk", [1, 7])
def test_greedy_tokens_equal_those_of_peft_in_any_batch(adapters: PeftAdapters, chunk: int) -> None:
    paged, slots = serve(adapters)
    found = greedy(paged.runner, paged.pages, PROMPTS, slots, 6, chunk)
    assert found == [adapters.best_after(*each) for each in zip(NAMES, PROMPTS, found, strict=True)]
