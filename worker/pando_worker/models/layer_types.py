"""Models whose layers see differently far: `layer_types`, or what older files say instead."""

from collections.abc import Sequence
from typing import Literal

from pando_worker.models.errors import BrokenCheckpoint

LayerType = Literal["full_attention", "sliding_attention"]


def layer_types(
    given: Sequence[LayerType] | None, layers: int, first_with_window: int
) -> Sequence[LayerType]:
    """One a layer.

    Args:
        first_with_window: Qwen's `max_window_layers`, for files without `layer_types`

    Raises:
        BrokenCheckpoint: another number of them is given.
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
    """As `layer_types`; in files without them the last of every `period` layers sees all."""
    implied: list[LayerType] = [
        "sliding_attention" if (index + 1) % period else "full_attention" for index in range(layers)
    ]
    return layer_types(implied if given is None else given, layers, 0)
