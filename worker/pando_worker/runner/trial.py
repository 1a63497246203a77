"""Batches that are no request's: to warm up, to try what is faster, to fill up a CUDA graph."""

import numpy as np

from pando_worker.batch import ForwardBatch, SamplingBatch


def trial_batch(
    *,
    cached: int,
    extend: int,
    page_size: int,
    rows: int = 1,
    page: int = 0,
    windows: bool = False,
) -> ForwardBatch:
    """Rows that all lie in the same pages, from `page` on, where they leave rubbish, and that
    sample after their tokens.

    Args:
        windows: there are window pages, and the rows lie in those of the same numbers
    """
    pages = np.arange(page, page - (-(cached + extend) // page_size), dtype=np.int32)
    positions = np.tile(np.arange(cached, cached + extend, dtype=np.int64), rows)
    slots, table = positions + page * page_size, np.tile(pages, (rows, 1))
    return ForwardBatch(
        input_ids=np.zeros(rows * extend, dtype=np.int64),
        positions=positions,
        out_slots=slots,
        extend_lens=np.full(rows, extend, dtype=np.int32),
        seq_lens=np.full(rows, cached + extend, dtype=np.int32),
        page_table=table,
        page_size=page_size,
        req_rows=np.zeros(rows, dtype=np.int64),
        sample_rows=np.arange(rows, dtype=np.int64),
        sampling=SamplingBatch(
            temperature=np.ones(rows, dtype=np.float32),
            top_k=np.zeros(rows, dtype=np.int64),
            top_p=np.ones(rows, dtype=np.float32),
            min_p=np.zeros(rows, dtype=np.float32),
            seed=np.zeros(rows, dtype=np.int64),
            step=np.zeros(rows, dtype=np.int64),
        ),
        window_table=table if windows else None,
        window_slots=slots if windows else None,
    )
