"""A batch's rows as lists of pages, the input of kernels over a paged cache.

Made once per batch and kind of layer. A row may omit leading pages that a sliding window hides or
that another call attends to. This is exact: keys already contain their positions, and a mask counts
from a row's end.
"""

from dataclasses import dataclass

import numpy as np

from pando_worker.attention.backend import page_numbers
from pando_worker.batch import ForwardBatch, Int32, Int64


@dataclass(frozen=True, slots=True)
class PagedRows:
    """Rows, of which some pages are listed row after row, with their token counts."""

    firsts: Int64  # [rows], the first listed page of each
    indptr: Int32  # [rows + 1], the start of each row's pages in the list
    last_lens: Int32  # [rows], tokens in each row's last page
    lengths: Int32  # [rows], tokens in each row's listed pages


def first_pages_seen(batch: ForwardBatch, window: int | None) -> Int64:
    """For each row, [batch], the first page with a key that one of its new tokens sees."""
    if window is None:
        return np.zeros(len(batch.seq_lens), dtype=np.int64)
    first_keys = batch.seq_lens.astype(np.int64) - batch.extend_lens + 1 - window
    pages: Int64 = np.maximum(first_keys, 0) // batch.page_size
    return pages


def paged_rows(batch: ForwardBatch, rows: slice, first_pages: Int64) -> PagedRows:
    """Some rows of a batch, each from its given first page.

    Args:
        first_pages: [batch]; each row has a token in that page or a later one
    """
    size = batch.page_size
    lengths, firsts = batch.seq_lens[rows].astype(np.int64), first_pages[rows]
    ends = -(-lengths // size)
    indptr = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(ends - firsts, out=indptr[1:])
    return PagedRows(
        firsts=firsts,
        indptr=indptr,
        last_lens=(lengths - (ends - 1) * size).astype(np.int32),
        lengths=(lengths - firsts * size).astype(np.int32),
    )


def pages_of(batch: ForwardBatch, rows: slice, paged: PagedRows, released: bool) -> Int32:
    """The pages of these rows, [all listed pages], row after row, from the batch's page table.

    Args:
        released: the pages of the layers that release them behind their window
    """
    table = page_numbers(batch, released)[0][rows]
    counts = np.diff(paged.indptr).tolist()
    parts = [
        pages[first : first + count]
        for pages, first, count in zip(table, paged.firsts.tolist(), counts, strict=True)
    ]
    return np.concatenate(parts, dtype=np.int32)
