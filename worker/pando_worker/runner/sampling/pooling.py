"""Pools hidden states into vectors: sums over tokens of a row, or each number's largest."""

import numpy as np
import torch
from torch import Tensor

from pando_worker.batch import ForwardBatch
from pando_worker.tensors.transfer import to_device


@torch.inference_mode()
def pool(hidden: Tensor, batch: ForwardBatch) -> Tensor | None:
    """Pooled states, float32 [num_pooled, hidden_size], of final hidden states [num_tokens,
    hidden_size]; None if the batch pools nothing. Those of a prompt's chunks together are its
    vector."""
    pooled = batch.pooled
    if pooled is None:
        return None
    # A row's sum as the difference of cumulative sums would lose precision.
    lengths = pooled.last - pooled.first
    offsets = np.repeat(np.cumsum(lengths) - lengths, lengths)
    tokens = np.arange(lengths.sum()) - offsets + np.repeat(pooled.first, lengths)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    out = hidden.new_zeros(len(lengths), hidden.shape[1], dtype=torch.float32)
    picked = hidden[to_device(tokens, hidden.device)].float()
    if pooled.weights is not None:
        picked = picked * to_device(pooled.weights, hidden.device)[:, None]
    out.index_add_(0, to_device(rows, hidden.device), picked)
    for row in np.flatnonzero(pooled.is_max).tolist():
        out[row] = hidden[int(pooled.first[row]) : int(pooled.last[row])].amax(0).float()
    return out
