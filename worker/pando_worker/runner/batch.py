"""The border between scheduler and model: one step as plain arrays.

The scheduler fills a `ForwardBatch` from its pools; a model runner turns it into tensors, runs the
model and returns the next tokens. There is one kind of batch: a row with `extend_lens == 1` that
has cached tokens before it is a decode, any other row a prefill (or a chunk of one).
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]


@dataclass(slots=True)
class SamplingBatch:
    """Sampling parameters of the rows that yield a token, each array of shape [num_samples]."""

    temperature: Float32  # 0 is greedy
    top_k: Int64  # 0 keeps every token
    top_p: Float32
    min_p: Float32
    seed: Int64
    step: Int64  # how many tokens the request has produced: (seed, step) fixes the draw


@dataclass(slots=True)
class ForwardBatch:
    """One step over `batch` requests with `num_tokens` new tokens altogether."""

    input_ids: Int64  # [num_tokens], the rows one after the other
    positions: Int64  # [num_tokens]
    out_slots: Int64  # [num_tokens], the KV slot that each token's key and value go to
    extend_lens: Int32  # [batch], new tokens of each row
    seq_lens: Int32  # [batch], tokens in the KV cache once this step has run
    page_table: Int32  # [batch, max_pages], each row's pages in order, then any valid ones
    page_size: int  # slot = page * page_size + offset
    sample_rows: Int64  # [num_samples], rows that yield a token: all but unfinished chunks
    sampling: SamplingBatch


class ModelRunner(Protocol):
    """Runs batches. The real one owns the weights and the KV pool."""

    def forward(self, batch: ForwardBatch) -> Int64:
        """Next token ids, [num_samples], in the order of `batch.sample_rows`; -1 for a row whose
        logits are not finite."""
        ...
