"""Rotary frequencies that transformers chooses by the longest position of each call.

That would rotate the same token differently from step to step, while its key is cached as it was
rotated first. So the longest sequence that is served decides for all, as in our own layers.
"""

from typing import Any

import torch
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


def pin_frequencies(model: nn.Module, context_length: int) -> None:
    """Keep the frequencies of a model as they are now, or as its longest sequences need them.

    `dynamic` scaling begins beyond `max_position_embeddings`, which no sequence exceeds here.
    """
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        if isinstance(kinds, str):
            module.rope_type = _pinned(module, kinds, None, context_length)  # type: ignore[assignment]
        elif isinstance(kinds, dict):
            for layer_type, kind in kinds.items():
                kinds[layer_type] = _pinned(module, kind, layer_type, context_length)


@torch.no_grad()
def _pinned(module: Any, kind: str, layer_type: str | None, context_length: int) -> str:
    """A type of the same frequencies that transformers leaves alone."""
    if kind == "longrope":
        parameters = module.config.rope_parameters
        original = (parameters[layer_type] if layer_type else parameters)[
            "original_max_position_embeddings"
        ]
        if context_length > original:
            buffer = getattr(module, f"{layer_type}_inv_freq" if layer_type else "inv_freq")
            scaled, _ = ROPE_INIT_FUNCTIONS[kind](
                module.config, buffer.device, seq_len=original + 1, layer_type=layer_type
            )
            buffer.copy_(scaled)
        return "default"
    return "default" if "dynamic" in kind else kind
