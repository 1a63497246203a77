"""A batch's rows as lists of pages, the form in which kernels over a paged cache take them.

Arrays on the host, made once a batch and kind of layer. A row need not list all its pages: leading
ones that a sliding window hides, or that are attended to elsewhere, are left out. That is exact,
for keys carry their positions in themselves and a mask counts from a row's end.
"""

from dataclasses import dataclass

import numpy as np

from pando_worker.attention.backend import page_numbers
from pando_worker.batch import ForwardBatch, Int32, Int64


@dataclass(frozen=True, slots=True)
class PagedRows:
    """Rows with their pages, and the tokens in them."""

    indptr: Int32  # [rows + 1], where each row's pages are in `pages`
    pages: Int32  # [all listed pages], row after row
    last_lens: Int32  # [rows], tokens in each row's last page
    lengths: Int32  # [rows], tokens in each row's listed pages


def first_pages_seen(batch: ForwardBatch, window: int | None) -> Int64:
    """The first page of each row, [batch], of which one of its new tokens sees a key."""
    if window is None:
        return np.zeros(len(batch.seq_lens), dtype=np.int64)
    first_keys = batch.seq_lens.astype(np.int64) - batch.extend_lens + 1 - window
    pages: Int64 = np.maximum(first_keys, 0) // batch.page_size
    return pages


def paged_rows(
    batch: ForwardBatch, rows: slice, first_pages: Int64, released: bool = False
) -> PagedRows:
    """Some rows of a batch, each from one of its pages on.

    Args:
        first_pages: [batch]; each row has a token in that page or behind it
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
