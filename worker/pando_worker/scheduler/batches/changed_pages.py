"""`ChangedPages`: what page tables elsewhere lack of the running requests' pages.

A GPU and other ranks keep page tables of their own, of the rows of the ReqToTokenPool. A step sends
them the pages that its rows have got since their last step, which for a decode is one page in many
steps.
"""

import numpy as np

from pando_worker.batch import Int64, PageChanges
from pando_worker.memory.req_pool import ReqToTokenPool
from pando_worker.memory.window_pages import WindowPages


class ChangedPages:
    def __init__(self, pool: ReqToTokenPool, windows: WindowPages | None) -> None:
        self._pool, self._windows = pool, windows
        # Of each row of the pool: the version of it that was sent, and how many pages.
        self._version: Int64 = np.full(len(pool.pages), -1, dtype=np.int64)
        self._count: Int64 = np.zeros(len(pool.pages), dtype=np.int64)

    def update(self, rows: Int64, counts: Int64) -> PageChanges:
        """What was not sent yet; from now on it counts as sent.

        Args:
            rows: [n], of the pool
            counts: [n], the pages of each that the step reads
        """
        version = self._pool.version[rows]
        held = np.where(self._version[rows] == version, self._count[rows], 0)
        self._version[rows] = version
        self._count[rows] = np.maximum(held, counts)
        grown = np.flatnonzero(counts > held)
        starts, added = held[grown], (counts - held)[grown]
        at = np.repeat(rows[grown], added)
        ends = np.cumsum(added)
        columns = np.arange(len(at)) + np.repeat(starts - (ends - added), added)
        pages = self._pool.pages[at, columns]
        return PageChanges(
            rows=at.astype(np.int32),
            columns=columns.astype(np.int32),
            pages=pages,
            window_pages=self._windows.window_of[pages] if self._windows else None,
        )
