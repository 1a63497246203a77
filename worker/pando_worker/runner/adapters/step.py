"""Which tokens of a step run with which slot."""

import numpy as np
import torch

from pando_worker.batch import ForwardBatch
from pando_worker.models.lora import LoraTokens, runs_of, sorted_by_slot
from pando_worker.tensors.transfer import to_device


def lora_tokens(batch: ForwardBatch, device: torch.device) -> LoraTokens | None:
    """None if all tokens run the base model."""
    if batch.adapters is None:
        return None
    tokens, slots = sorted_by_slot(np.repeat(batch.adapters.slots, batch.extend_lens))
    if not len(tokens):
        return None
    return LoraTokens(
        to_device(tokens, device),
        to_device(slots, device),
        to_device(np.array([len(tokens)], dtype=np.int32), device),
        runs_of(slots),
    )
