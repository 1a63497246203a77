"""Tiny checkpoints with random weights, written by transformers, the tests' reference."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig

SHAPE: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}


class Reference:
    """A model as transformers runs it, in float32, and the directory of its checkpoint.

    `context_length` and `at_least` are explained in `families.py`.
    """

    def __init__(
        self,
        path: Path,
        *,
        config_type: Any = LlamaConfig,
        dtype: torch.dtype = torch.float32,
        max_shard_size: str = "1GB",
        context_length: int | None = None,
        at_least: int = 0,
        std: float = 0.3,
        **overrides: Any,
    ) -> None:
        torch.manual_seed(0)
        self.path = path
        self.context_length = context_length
        self.at_least = at_least
        model = AutoModelForCausalLM.from_config(config_type(**SHAPE | overrides))
        with torch.no_grad():
            for parameter in model.parameters():
                # Biases start as zeros and norms as ones: make all of them count.
                offset = 1.0 if (parameter == 1).all() else 0.0
                parameter.normal_(std=std).add_(offset)
        model.to(dtype).save_pretrained(path, max_shard_size=max_shard_size)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self._greedy: dict[tuple[int, ...], list[int]] = {}

    def logits(self, tokens: list[int]) -> Tensor:
        """Logits after the last of `tokens`, [vocab_size]."""
        return self.all_logits(tokens)[-1]

    def all_logits(self, tokens: list[int]) -> Tensor:
        """Logits after each of `tokens`, [len(tokens), vocab_size]."""
        padded = tokens + [0] * (self.at_least - len(tokens))  # no token sees a later one
        with torch.inference_mode():
            logits: Tensor = self.model(torch.tensor([padded]), use_cache=False).logits[0]
        return logits[: len(tokens)]

    def hidden(self, tokens: list[int]) -> Tensor:
        """Final hidden states of `tokens`, [len(tokens), hidden_size]."""
        padded = tokens + [0] * (self.at_least - len(tokens))
        with torch.inference_mode():
            states: Tensor = self.model.model(torch.tensor([padded])).last_hidden_state[0]
        return states[: len(tokens)]

    def greedy(self, prompt: list[int], count: int) -> list[int]:
        """The best `count` tokens after `prompt`, without a KV cache; results are kept."""
        tokens = self._greedy.setdefault(tuple(prompt), [])
        while len(tokens) < count:
            tokens.append(int(self.logits(prompt + tokens).argmax()))
        return tokens[:count]


def prompt(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, SHAPE["vocab_size"], (length,), generator=generator).tolist()
