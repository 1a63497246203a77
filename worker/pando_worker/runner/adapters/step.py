"""Which tokens of a step run with which slot."""

import numpy as np
from numpy.typing import NDArray

from pando_worker.batch import ForwardBatch, Int32
from pando_worker.models.lora.linear import LoraMemory, LoraTokens, runs_of, sorted_by_slot
from pando_worker.tensors.transfer import to_device


def lora_tokens(batch: ForwardBatch, memory: LoraMemory) -> LoraTokens | None:
    """None if all tokens run the base model."""
    if batch.adapters is None:
        return None
    return _tokens(np.repeat(batch.adapters.slots, batch.extend_lens), memory)


def head_tokens(
    batch: ForwardBatch, rows: NDArray[np.int64], memory: LoraMemory
) -> LoraTokens | None:
    """For the head, which computes some of the step's tokens. None if no adapter changes it.

    Args:
        rows: these tokens, [n]
    """
    if batch.adapters is None or memory.step is None or memory.step.linear_alone:
        return None
    return _tokens(np.repeat(batch.adapters.slots, batch.extend_lens)[rows], memory)


def _tokens(slots: Int32, memory: LoraMemory) -> LoraTokens | None:
    tokens, in_order = sorted_by_slot(slots)
    if not len(tokens):
        return None
    runs, device = runs_of(in_order), memory.pages.device
    return LoraTokens(
        to_device(tokens, device),
        to_device(in_order, device),
        to_device(np.array([len(tokens)], dtype=np.int32), device),
        runs,
        memory.linear_alone(slot for slot, _, _ in runs),
    )
