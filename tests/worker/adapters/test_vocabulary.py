"""Adapters of the embedding and the head, compared with `peft` on transformers."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pando_worker.adapters.errors import AdapterError
from pando_worker.adapters.tensor_file import WEIGHTS
from pando_worker.batch import PromptScores
from tests.worker.adapters.batches import with_adapters
from tests.worker.adapters.peft_adapters import BASE, PeftAdapters, Slots, assert_logits, greedy
from tests.worker.model.checkpoints import prompt
from tests.worker.model.conftest import References
from tests.worker.model.paged import Paged, Row

OUT = ["o_proj"]
ADAPTERS: dict[str, dict[str, Any]] = {
    "linear": {"r": 8},
    "embedding": {"r": 5, "target_modules": ["o_proj", "embed_tokens"]},
    "head": {"r": 17, "lora_alpha": 20, "target_modules": ["lm_head"]},
    "both": {"r": 6, "target_modules": ["embed_tokens", "lm_head", "o_proj"]},
    "whole embedding": {"r": 2, "target_modules": OUT, "modules_to_save": ["embed_tokens"]},
    "whole head": {"r": 2, "target_modules": OUT, "modules_to_save": ["lm_head"]},
    "both whole": {
        "r": 2,
        "target_modules": "all-linear",
        "modules_to_save": ["embed_tokens", "lm_head"],
    },
    "tied": {"r": 3, "target_modules": [*OUT, "embed_tokens"], "ensure_weight_tying": True},
    "tied whole": {
        "target_modules": OUT,
        "modules_to_save": ["embed_tokens"],
        "ensure_weight_tying": True,
    },
}
NAMES = [BASE, *ADAPTERS, "head", BASE]
PROMPTS = [prompt(5 + 3 * index % 14, seed=index) for index in range(len(NAMES))]
FAMILIES = ["llama", "llama, biases, tied", "gemma2"]


def settings(adapters: PeftAdapters, **more: Any) -> dict[str, Any]:
    return {
        "model": adapters.base.path,
        "context_length": adapters.base.context_length,
        "max_loras": len(ADAPTERS),
        "lora_ranks": 60 * 16,
    } | more


@pytest.fixture(scope="module", params=FAMILIES)
def adapters(
    request: pytest.FixtureRequest,
    reference_of: References,
    tmp_path_factory: pytest.TempPathFactory,
) -> PeftAdapters:
    return PeftAdapters(reference_of(request.param), tmp_path_factory.mktemp("adapters"), ADAPTERS)


def serve(adapters: PeftAdapters, **more: Any) -> tuple[Paged, list[int]]:
    fields = settings(adapters, **more)
    paged = Paged(fields.pop("model"), **fields)
    slots = Slots(paged.runner)
    where = {BASE: -1} | {name: slot for slot, name in enumerate(ADAPTERS)}
    for name, path in adapters.paths.items():
        slots.load(where[name], path)
    return paged, [where[name] for name in NAMES]


@pytest.mark.parametrize("cpu_kernels", ["off", "on"])
def test_a_mixed_batch_has_the_logits_of_peft(adapters: PeftAdapters, cpu_kernels: str) -> None:
    """For a prefill, and for decodes after it."""
    paged, slots = serve(adapters, cpu_kernels=cpu_kernels)
    assert_logits(paged, slots, adapters, NAMES, PROMPTS, steps=4, tolerance=3e-4)


def test_greedy_tokens_equal_those_of_peft_in_any_batch(adapters: PeftAdapters) -> None:
    paged, slots = serve(adapters)
    found = greedy(paged.runner, paged.pages, PROMPTS, slots, 6, 7)
    assert found == [adapters.best_after(*each) for each in zip(NAMES, PROMPTS, found, strict=True)]


def test_a_table_takes_memory_only_if_it_is_another_than_the_bases(
    adapters: PeftAdapters, tmp_path: Path
) -> None:
    """PEFT saves the base's own table beside an adapter of it, and uses what it has saved."""
    changed = tmp_path / "changed"
    shutil.copytree(adapters.paths["both"], changed)
    tensors = load_file(changed / WEIGHTS)
    [embedding, head] = sorted(key for key in tensors if key.endswith(".base_layer.weight"))[::-1]
    tensors[embedding][7:20] += 0.5
    paged, _ = serve(adapters)
    slots = Slots(paged.runner)
    save_file(tensors, changed / WEIGHTS)
    if adapters.base.model.config.tie_word_embeddings:
        with pytest.raises(AdapterError, match="to which another table is tied"):
            slots.load(1, changed)
        tensors[head] = tensors[embedding].clone()
        save_file(tensors, changed / WEIGHTS)
    truth = PeftAdapters(adapters.base, tmp_path, {})
    truth.add("changed", changed)
    both, other = slots.load(0, adapters.paths["both"]), slots.load(1, changed)
    assert both.num_bytes == slots.load(0, _without_tables(changed, tmp_path)).num_bytes
    assert other.identity != both.identity
    row = Row(list(range(5, 25)))
    logits = paged.runner.logits(with_adapters(paged.pages.batch([row], [20]), [1]))
    expected = truth.all_logits("changed", row.tokens)[-1:]
    torch.testing.assert_close(logits, expected, atol=3e-4, rtol=3e-4)


def _without_tables(adapter: Path, folder: Path) -> Path:
    copy = folder / "without"
    shutil.copytree(adapter, copy)
    tensors = load_file(copy / WEIGHTS)
    save_file({key: t for key, t in tensors.items() if "base_layer" not in key}, copy / WEIGHTS)
    return copy


def test_prompt_scores_are_those_of_the_adapters_head(adapters: PeftAdapters) -> None:
    """Also those of tokens that the step does not sample after."""
    paged, slots = serve(adapters)
    rows = [Row(prompt(9, seed=seed)) for seed in range(3)]
    names = ["whole head", BASE, "both"]
    where = [slots[NAMES.index(name)] for name in names]
    batch = with_adapters(paged.pages.batch(rows, [9] * 3), where)
    after = np.array([2, 7, 12, 20, 25])
    tokens = np.concatenate([row.tokens for row in rows])
    batch.scores = PromptScores(after=after, targets=tokens[after + 1], top_logprobs=1)
    step = paged.runner.launch(batch)
    step.sample(None)
    scores = step.result().scores
    assert scores is not None
    truth = torch.cat(
        [adapters.all_logits(name, row.tokens) for name, row in zip(names, rows, strict=True)]
    ).log_softmax(-1)
    expected = truth[after, tokens[after + 1]]
    torch.testing.assert_close(torch.from_numpy(scores.chosen), expected, atol=3e-4, rtol=3e-4)
