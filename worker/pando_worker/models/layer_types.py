"""Which layers have a sliding window: `layer_types`, or its equivalent in older files."""

from collections.abc import Sequence
from typing import Literal

from pando_worker.models.errors import BrokenCheckpoint

LayerType = Literal["full_attention", "sliding_attention"]


def layer_types(
    given: Sequence[LayerType] | None, layers: int, first_with_window: int
) -> Sequence[LayerType]:
    """The type of each layer.

    Args:
        first_with_window: Qwen's `max_window_layers`, for files without `layer_types`

    Raises:
        BrokenCheckpoint: the file has types for a different number of layers.
    """
    if given is None:
        return [
            "full_attention" if index < first_with_window else "sliding_attention"
            for index in range(layers)
        ]
    if len(given) != layers:
        raise BrokenCheckpoint(f"{len(given)} layer_types for {layers} layers")
    return given


def alternating(given: Sequence[LayerType] | None, layers: int, period: int) -> Sequence[LayerType]:
    """Like `layer_types`; in files without it, the last of every `period` layers has no window."""
    implied: list[LayerType] = [
        "sliding_attention" if (index + 1) % period else "full_attention" for index in range(layers)
    ]
    return layer_types(implied if given is None else given, layers, 0)
