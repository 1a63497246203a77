"""Models by their shapes, and the least that a step of them must read and compute."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder with gated feed-forward layers or experts, as in its `config.json`."""

    name: str
    config: dict[str, Any]

    def save(self, directory: Path) -> None:
        (directory / "config.json").write_text(json.dumps(self.config))

    @property
    def vocab_size(self) -> int:
        return int(self.config["vocab_size"])

    @property
    def context_length(self) -> int:
        return int(self.config["max_position_embeddings"])

    @property
    def cell_values(self) -> int:
        """Numbers in the KV cache per token."""
        config = self.config
        heads = config["num_key_value_heads"]
        return int(2 * config["num_hidden_layers"] * heads * config["head_dim"])

    def weights_read(self, rows: int) -> float:
        """Weights that a decode of `rows` rows reads, each once: all but the other rows of the
        embedding, and of experts those that some row probably uses, if all are equally likely."""
        touched = 1.0
        if experts := self.config.get("num_experts"):
            touched = 1 - (1 - self.config["num_experts_per_tok"] / experts) ** rows
        read = self._always_met + touched * self._all_feed_forward
        return self._layers * read + self._head

    def prefill_flops(self, tokens: int, context: int) -> float:
        """Operations for `tokens` tokens in sequences of `context`, without the head: two for each
        weight that a token uses, and four for each pair of a query's and a key's number."""
        config = self.config
        pairs = tokens * context / 2 * config["num_attention_heads"] * config["head_dim"]
        met = self._always_met + self._met_feed_forward
        return float(self._layers * (2 * met * tokens + 4 * pairs))

    @property
    def _layers(self) -> int:
        return int(self.config["num_hidden_layers"])

    @property
    def _head(self) -> int:
        return int(self.config["hidden_size"] * self.vocab_size)

    @property
    def _always_met(self) -> int:
        """Per layer: attention's projections, and the router if there are experts."""
        config = self.config
        heads = 2 * config["num_attention_heads"] + 2 * config["num_key_value_heads"]
        outputs = heads * config["head_dim"] + config.get("num_experts", 0)
        return int(config["hidden_size"] * outputs)

    @property
    def _all_feed_forward(self) -> int:
        config = self.config
        if experts := config.get("num_experts"):
            return int(3 * experts * config["hidden_size"] * config["moe_intermediate_size"])
        return int(3 * config["hidden_size"] * config["intermediate_size"])

    @property
    def _met_feed_forward(self) -> int:
        if experts := self.config.get("num_experts"):
            return int(self._all_feed_forward * self.config["num_experts_per_tok"] // experts)
        return self._all_feed_forward


LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
}
QWEN_MOE: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
}
TINY: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": 128,
}
TINY_EXPERTS: dict[str, Any] = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}

SHAPES = {
    "llama-3-8b": Shape("llama-3-8b", LLAMA),
    "qwen3-30b-a3b": Shape("qwen3-30b-a3b", QWEN_MOE),
}
DRY_SHAPES = {
    "llama-3-8b": Shape("tiny llama", LLAMA | TINY),
    "qwen3-30b-a3b": Shape("tiny qwen3-moe", QWEN_MOE | TINY | TINY_EXPERTS),
}
