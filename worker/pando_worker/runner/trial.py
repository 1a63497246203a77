"""Batches that belong to no request: for warming up, for measuring, for capturing CUDA graphs."""

import numpy as np

from pando_worker.batch import ForwardBatch, SamplingBatch, SourceArray, SourceRows
from pando_worker.pools import SourceForm


def trial_batch(
    *,
    cached: int,
    extend: int,
    page_size: int,
    rows: int = 1,
    page: int = 0,
    windows: bool = False,
    source: SourceForm | None = None,
    encodes: bool = False,
) -> ForwardBatch:
    """A batch whose rows all use the same pages, from `page` on, and sample after their tokens. It
    leaves garbage in these pages.

    Args:
        windows: whether there are window pages; the rows use those with the same numbers
        source: of an encoder-decoder, whose rows attend to one in the first pages of the pool
        encodes: whether the batch encodes it
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
        sources=_sources(source, encodes, rows, page_size) if source else None,
    )


def _sources(form: SourceForm, encodes: bool, rows: int, page_size: int) -> SourceRows:
    """The longest source, of zeros."""
    length = form.positions
    shape, dtype = (
        ((form.mel_bins, 2 * length), np.float32) if form.mel_bins else (length, np.int32)
    )
    pages = np.arange(-(-length // page_size), dtype=np.int32)
    return SourceRows(
        encode=[SourceArray(b"", np.zeros(shape, dtype=dtype))] if encodes else [],
        slots=np.arange(length if encodes else 0, dtype=np.int64),
        lengths=np.full(rows, length, dtype=np.int32),
        page_table=np.tile(pages, (rows, 1)),
    )
