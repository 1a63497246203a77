"""Adapters with random weights, written by `peft`, which is also the reference for them."""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor

from pando_worker.adapters.info import AdapterInfo
from pando_worker.batch import ModelRunner
from pando_worker.runner.model_runner import TorchModelRunner
from tests.worker.adapters.batches import with_adapters
from tests.worker.model.checkpoints import Reference
from tests.worker.model.paged import Paged, Pages, Row

BASE = ""
EIGHT: dict[str, dict[str, Any]] = {
    "rank 1": {"r": 1, "lora_alpha": 2},
    "rank 8": {"r": 8, "lora_alpha": 16},
    "rank 16": {"r": 16, "lora_alpha": 16},
    "rank 17": {"r": 17, "lora_alpha": 5},
    "rank 40, rslora": {"r": 40, "lora_alpha": 4, "use_rslora": True},
    "patterns": {
        "r": 4,
        "lora_alpha": 8,
        "rank_pattern": {r"layers\.1\.self_attn\.o_proj": 3, "o_proj": 20},
        "alpha_pattern": {r"layers\.0\..*": 5},
    },
    "attention": {"r": 6, "target_modules": ["o_proj"]},
    "a layer": {
        "r": 5,
        "layers_to_transform": [1],
        "target_modules": ["o_proj", "self_attn.k_proj"],
    },
}
"""What of `LoraConfig` they have; without `target_modules`, all linear layers have an adapter."""


class PeftAdapters:
    """Some adapters of a base model, in a directory each, and the model with each of them."""

    def __init__(
        self,
        base: Reference,
        folder: Path,
        adapters: dict[str, dict[str, Any]],
        *,
        dtype: torch.dtype = torch.float32,
        std: float = 0.1,
    ) -> None:
        self.base = base
        self.paths: dict[str, Path] = {}
        self._models: dict[str, Any] = {}
        for seed, (name, fields) in enumerate(adapters.items()):
            torch.manual_seed(seed)
            fields = {"target_modules": "all-linear", "task_type": "CAUSAL_LM"} | fields
            model = get_peft_model(deepcopy(base.model), LoraConfig(**fields))
            with torch.no_grad():
                for key, parameter in model.named_parameters():
                    if "lora_" in key:
                        parameter.normal_(std=std)
                    elif "modules_to_save" in key:
                        parameter.add_(torch.randn_like(parameter), alpha=std)
                    if "lora_" in key or "modules_to_save" in key:
                        parameter.copy_(parameter.to(dtype))
            self._models[name] = model.eval()
            self.paths[name] = folder / name.replace(" ", "-").replace(",", "")
            model.to(dtype).save_pretrained(self.paths[name])
            model.to(torch.float32)

    def add(self, name: str, path: Path) -> None:
        """An adapter that is in a directory already."""
        self._models[name] = PeftModel.from_pretrained(deepcopy(self.base.model), path).eval()
        self.paths[name] = path

    def save(self, name: str, path: Path) -> None:
        """As `peft` writes an adapter that it has read."""
        self._models[name].save_pretrained(path)

    def all_logits(self, name: str, tokens: list[int]) -> Tensor:
        """Logits after each of `tokens`, [len(tokens), vocab_size]; with the base's name without an
        adapter."""
        if name == BASE:
            return self.base.all_logits(tokens)
        padded = tokens + [0] * (self.base.at_least - len(tokens))
        with torch.inference_mode():
            logits: Tensor = self._models[name](torch.tensor([padded]), use_cache=False).logits[0]
        return logits[: len(tokens)]

    def best_after(self, name: str, prompt: list[int], output: list[int]) -> list[int]:
        """The best token after the prompt and after each beginning of `output`, which is what the
        model answers greedily if and only if these are its tokens. One pass, where `greedy` takes
        one a token."""
        logits = self.all_logits(name, [*prompt, *output[:-1]])
        return logits[len(prompt) - 1 :].argmax(-1).tolist()

    def greedy(self, name: str, prompt: list[int], count: int) -> list[int]:
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(int(self.all_logits(name, tokens)[-1].argmax()))
        return tokens[len(prompt) :]

    def merged(self, name: str) -> Any:
        """Transformers' model with the adapter's weights added to its own."""
        return deepcopy(self._models[name]).merge_and_unload()


class Slots:
    """Puts adapters into a runner's slots, as a scheduler does."""

    def __init__(self, runner: TorchModelRunner) -> None:
        assert runner.adapters is not None
        self._loader = runner.adapters
        self._free = np.random.default_rng(0).permutation(runner.pools.adapter_pages).tolist()
        self._pages: dict[int, list[int]] = {}

    def load(self, slot: int, path: Path) -> AdapterInfo:
        info = self._loader.check(str(path)).result()
        self._free += self._pages.pop(slot, [])
        self._pages[slot] = [self._free.pop() for _ in range(info.pages)]
        self._loader.load(slot, self._pages[slot], info).result()
        return info


def greedy(
    runner: ModelRunner,
    pages: Pages,
    prompts: Sequence[list[int]],
    slots: Sequence[int],
    count: int,
    chunk: int,
) -> list[list[int]]:
    """The best `count` tokens after each prompt. Rows join one at a time, so that most batches mix
    decodes with chunks of prefills."""
    rows = [Row(list(tokens)) for tokens in prompts]
    goals = [len(tokens) + count for tokens in prompts]
    number = 0
    while active := [
        index
        for index in range(min(len(rows), 1 + number // 2))
        if len(rows[index].tokens) < goals[index]
    ]:
        running = [rows[index] for index in active]
        batch = pages.batch(running, [min(chunk, row.pending) for row in running])
        launched = runner.launch(with_adapters(batch, [slots[i] for i in active]))
        launched.sample(None)
        tokens = launched.result().tokens.tolist()
        for sample, token in zip(batch.sample_rows.tolist(), tokens, strict=True):
            running[sample].tokens.append(token)
        number += 1
    return [row.tokens[-count:] for row in rows]


def assert_logits(
    paged: Paged,
    slots: Sequence[int],
    adapters: PeftAdapters,
    names: Sequence[str],
    prompts: Sequence[list[int]],
    *,
    steps: int,
    tolerance: float,
) -> None:
    """A prefill of all prompts in one batch and the decodes after it have the logits of `peft`."""
    rows = [Row(list(tokens)) for tokens in prompts]
    found = []
    for _ in range(steps):
        batch = paged.pages.batch(rows, [row.pending for row in rows])
        # With kernels, a later step computes into the same tensor.
        found.append(paged.runner.logits(with_adapters(batch, slots)).clone())
        for row, token in zip(rows, found[-1].argmax(-1).tolist(), strict=True):
            row.tokens.append(token)
    expected = [
        adapters.all_logits(name, row.tokens[:-1])[-steps:]
        for name, row in zip(names, rows, strict=True)
    ]
    torch.testing.assert_close(
        torch.stack(found, dim=1), torch.stack(expected), atol=tolerance, rtol=tolerance
    )
