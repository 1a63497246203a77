"""Batches with adapters, without what only the reference needs."""

from collections.abc import Sequence

import numpy as np

from pando_worker.batch import AdapterRows, ForwardBatch


def with_adapters(batch: ForwardBatch, slots: Sequence[int]) -> ForwardBatch:
    """Let each row run with the adapter in its slot, or with the base at -1."""
    if any(slot >= 0 for slot in slots):
        batch.adapters = AdapterRows(np.array(slots, dtype=np.int32))
    return batch
