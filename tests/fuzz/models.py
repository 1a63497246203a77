"""The models of a fuzz run: the shipped one, and tiny random ones with window layers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, MistralConfig

from tests.worker.model.checkpoints import Reference

SHIPPED = Path(__file__).parents[2] / "examples/models/pando-tiny"
VOCAB = 3072  # of all of them


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    truth: Any  # the same model in transformers
    cell_bytes: int  # keys and values of a token, in float32


def checkpoints(directory: Path) -> list[Checkpoint]:
    """All models; the random ones are written to `directory`."""
    shipped = AutoModelForCausalLM.from_pretrained(SHIPPED, dtype=torch.float32)
    fields: dict[str, Any] = {"vocab_size": VOCAB, "std": 0.2}
    mistral = Reference(
        directory / "mistral", config_type=MistralConfig, sliding_window=20, **fields
    )
    gemma = Reference(
        directory / "gemma",
        config_type=Gemma3TextConfig,
        num_hidden_layers=3,
        head_dim=16,
        query_pre_attn_scalar=24,
        sliding_window=33,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        **fields,
    )
    return [
        Checkpoint(SHIPPED, shipped, cell_bytes=4 * 2 * 2 * 64 * 4),
        Checkpoint(mistral.path, mistral.model, cell_bytes=2 * 2 * 2 * 8 * 4),
        Checkpoint(gemma.path, gemma.model, cell_bytes=3 * 2 * 2 * 16 * 4),
    ]
