"""A batch's rows as lists of pages, the input of kernels over a paged cache.

Made once per batch and kind of layer. A row may omit leading pages that a sliding window hides or
that another call attends to. This is exact: keys already contain their positions, and a mask counts
from a row's end.
"""

from dataclasses import dataclass

import numpy as np

from pando_worker.attention.backend import page_numbers
from pando_worker.batch import ForwardBatch, Int32


@dataclass(frozen=True, slots=True)
class PagedRows:
    """Rows, of which some pages are listed row after row, with their token counts."""

    firsts: Int32  # [rows], the first listed page of each
    indptr: Int32  # [rows + 1], the start of each row's pages in the list
    last_lens: Int32  # [rows], tokens in each row's last page
    lengths: Int32  # [rows], tokens in each row's listed pages

    @classmethod
    def zeros(cls, rows: int) -> "PagedRows":
        def zeros(count: int) -> Int32:
            return np.zeros(count, dtype=np.int32)

        return cls(zeros(rows), zeros(rows + 1), zeros(rows), zeros(rows))

    def fill(self, seq_lens: Int32, page_size: int) -> None:
        """From `firsts` and the tokens of each row, [rows]; each has one in its first listed page
        or a later one."""
        np.subtract(seq_lens, self.firsts * page_size, out=self.lengths)
        # Of the last token: its page among those that are listed, and its place in that.
        pages, places = np.divmod(self.lengths - 1, page_size)
        np.add(places, 1, out=self.last_lens)
        np.add.accumulate(pages + 1, out=self.indptr[1:])


def first_pages_seen(batch: ForwardBatch, window: int | None) -> Int32:
    """For each row, [batch], the first page with a key that one of its new tokens sees."""
    if window is None:
        return np.zeros(len(batch.seq_lens), dtype=np.int32)
    first_keys = batch.seq_lens - batch.extend_lens + (1 - window)
    pages: Int32 = np.maximum(first_keys, 0) // batch.page_size
    return pages


def paged_rows(batch: ForwardBatch, rows: slice, first_pages: Int32) -> PagedRows:
    """Some rows of a batch, each from its given first page.

    Args:
        first_pages: [batch]; each row has a token in that page or a later one
    """
    seq_lens = batch.seq_lens[rows]
    paged = PagedRows.zeros(len(seq_lens))
    paged.firsts[:] = first_pages[rows]
    paged.fill(seq_lens, batch.page_size)
    return paged


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
