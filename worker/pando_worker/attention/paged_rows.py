"""A batch's rows as lists of pages, the input of kernels over a paged cache.

These are host arrays, made once per batch and kind of layer. A row may omit leading pages that a
sliding window hides or that another call attends to. This is exact: keys already contain their
positions, and a mask counts from a row's end.
"""

from dataclasses import dataclass

import numpy as np

from pando_worker.attention.backend import page_numbers
from pando_worker.batch import ForwardBatch, Int32, Int64


@dataclass(frozen=True, slots=True)
class PagedRows:
    """Rows with their pages and token counts."""

    indptr: Int32  # [rows + 1], the start of each row in `pages`
    pages: Int32  # [all listed pages], row after row
    last_lens: Int32  # [rows], tokens in each row's last page
    lengths: Int32  # [rows], tokens in each row's listed pages


def first_pages_seen(batch: ForwardBatch, window: int | None) -> Int64:
    """For each row, [batch], the first page with a key that one of its new tokens sees."""
    if window is None:
        return np.zeros(len(batch.seq_lens), dtype=np.int64)
    first_keys = batch.seq_lens.astype(np.int64) - batch.extend_lens + 1 - window
    pages: Int64 = np.maximum(first_keys, 0) // batch.page_size
    return pages


def paged_rows(
    batch: ForwardBatch, rows: slice, first_pages: Int64, released: bool = False
) -> PagedRows:
    """Some rows of a batch, each from its given first page.

    Args:
        first_pages: [batch]; each row has a token in that page or a later one
        released: list the pages of the layers that release them behind their window
    """
    size = batch.page_size
    lengths, firsts = batch.seq_lens[rows].astype(np.int64), first_pages[rows]
    ends = -(-lengths // size)
    listed = [
        pages[first:end]
        for pages, first, end in zip(
            page_numbers(batch, released)[0][rows], firsts.tolist(), ends.tolist(), strict=True
        )
    ]
    indptr = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(ends - firsts, out=indptr[1:])
    return PagedRows(
        indptr=indptr,
        pages=np.concatenate(listed, dtype=np.int32),
        last_lens=(lengths - (ends - 1) * size).astype(np.int32),
        lengths=(lengths - firsts * size).astype(np.int32),
    )
