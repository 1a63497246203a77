"""LoRA adapters of the shipped tiny model, written by `peft`, which is also the reference."""

from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from tests.worker.server.process.worker_process import MODEL


@lru_cache(maxsize=1)
def _base() -> Any:
    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()


class TinyAdapter:
    """An adapter with random weights, large enough to change most tokens."""

    def __init__(self, folder: Path, seed: int, rank: int) -> None:
        self.path = folder
        torch.manual_seed(seed)
        config = LoraConfig(
            r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        self._model = get_peft_model(deepcopy(_base()), config).eval()
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                if "lora_" in name:
                    parameter.normal_(std=0.08)
        self._model.save_pretrained(folder)

    def logprobs(self, tokens: list[int]) -> torch.Tensor:
        """Of the whole vocabulary, given the tokens up to each: [len(tokens), vocab_size]."""
        return _logprobs(self._model, tokens)

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        return _greedy(self._model, prompt, count)

    def hidden(self, tokens: list[int]) -> torch.Tensor:
        """The last token's final hidden state, of length 1: [hidden_size]."""
        with torch.inference_mode():
            inner = self._model.get_base_model().model
            state: torch.Tensor = inner(torch.tensor([tokens])).last_hidden_state[0, -1]
            normed: torch.Tensor = state / state.norm()
        return normed


def base_greedy(prompt: list[int], count: int) -> list[int]:
    return _greedy(_base(), prompt, count)


def _logprobs(model: Any, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([tokens]), use_cache=False).logits[0]
    return logits.log_softmax(-1)


def _greedy(model: Any, prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(_logprobs(model, tokens)[-1].argmax()))
    return tokens[len(prompt) :]
