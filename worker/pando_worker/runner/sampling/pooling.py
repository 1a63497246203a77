"""Pools hidden states for embeddings: a row's last one, or the sum over the row."""

import numpy as np
import torch
from torch import Tensor

from pando_worker.batch import ForwardBatch
from pando_worker.tensors.transfer import to_device


@torch.inference_mode()
def pool(hidden: Tensor, batch: ForwardBatch) -> Tensor | None:
    """Pooled states, float32 [num_pooled, hidden_size], of final hidden states [num_tokens,
    hidden_size]; None if the batch pools nothing. The caller divides sums, because a prompt may
    have several chunks."""
    pooled = batch.pooled
    if pooled is None:
        return None
    ends = np.cumsum(batch.extend_lens, dtype=np.int64)[pooled.rows]
    # A row's sum as the difference of cumulative sums would lose precision.
    firsts = np.where(pooled.is_mean, ends - batch.extend_lens[pooled.rows], ends - 1)
    lengths = ends - firsts
    offsets = np.repeat(np.cumsum(lengths) - lengths, lengths)
    tokens = np.arange(lengths.sum()) - offsets + np.repeat(firsts, lengths)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    out = hidden.new_zeros(len(lengths), hidden.shape[1], dtype=torch.float32)
    picked = hidden[to_device(tokens, hidden.device)].float()
    return out.index_add_(0, to_device(rows, hidden.device), picked)
