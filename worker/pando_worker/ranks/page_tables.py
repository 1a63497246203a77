"""Page tables on their way to other ranks: only what has changed is sent.

Each of the other ranks has the table of all running requests, as rank 0's ReqToTokenPool, and makes
a step's page tables of it. So a step's message does not grow with its contexts.
"""

from dataclasses import replace

import numpy as np

from pando_worker.batch import ForwardBatch, Int32, PageChanges

_SENT = np.zeros((0, 0), dtype=np.int32)


def without_tables(batch: ForwardBatch) -> ForwardBatch:
    """What other ranks need of a batch; whole if it has no `page_changes`."""
    if batch.page_changes is None:
        return batch
    window_table = None if batch.window_table is None else _SENT
    return replace(batch, page_table=_SENT, window_table=window_table)


class RankPageTables:
    def __init__(self, rows: int, context_length: int, page_size: int) -> None:
        """
        Args:
            rows: requests that run at a time
            context_length: tokens of a request
        """
        pages = -(-context_length // page_size)
        # Most of both is never written, and takes no memory.
        self._table: Int32 = np.zeros((rows, pages), dtype=np.int32)
        self._window_table: Int32 = np.zeros((rows, pages), dtype=np.int32)

    def complete(self, batch: ForwardBatch) -> None:
        """Give the batch its page tables, if it came without."""
        changes = batch.page_changes
        if changes is None:
            return
        most = int((-(-batch.seq_lens // batch.page_size)).max())
        self._add(changes)
        batch.page_table = self._table[batch.req_rows, :most]
        if batch.window_table is not None:
            batch.window_table = self._window_table[batch.req_rows, :most]

    def _add(self, changes: PageChanges) -> None:
        self._table[changes.rows, changes.columns] = changes.pages
        if changes.window_pages is not None:
            self._window_table[changes.rows, changes.columns] = changes.window_pages
