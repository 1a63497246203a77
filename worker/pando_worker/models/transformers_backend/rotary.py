"""Fixes rotary frequencies that transformers would choose by the longest position of each call.

Otherwise the same token would be rotated differently in different steps, while its cached key has
the first rotation. So the longest sequence that is served decides for all, as in our own layers.
"""

from typing import Any

import torch
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


def pin_frequencies(model: nn.Module, context_length: int) -> None:
    """Fix a model's frequencies to the current ones, or to those that its longest sequences need.

    `dynamic` scaling starts beyond `max_position_embeddings`, which no sequence exceeds here.
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
    """A rope type with the same frequencies that transformers does not update."""
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
