"""`PageTable`: the page table of a step, updated by what has changed since it was used last.

A batch's arrays stay unchanged until its result is read, and the next batch is built before that.
So two tables take turns.
"""

import numpy as np

from pando_worker.batch import Int32, Int64
from pando_worker.memory.req_pool import ReqToTokenPool

_NOBODY = -1


class PageTable:
    def __init__(self, pool: ReqToTokenPool) -> None:
        self._pool = pool
        # Most of it is never written, and takes no memory.
        self._table: Int32 = np.zeros_like(pool.pages)
        size = len(pool.pages)
        # What each of its rows holds: which row of the pool, in which version, how many pages.
        self._row: Int64 = np.full(size, _NOBODY, dtype=np.int64)
        self._version: Int64 = np.zeros(size, dtype=np.int64)
        self._count: Int64 = np.zeros(size, dtype=np.int64)

    def update(self, rows: Int64, counts: Int64) -> Int32:
        """The pages of some rows of the pool: a view of [rows, most pages], with valid pages behind
        a row's own.

        Args:
            rows: [n], of the pool
            counts: [n], the pages of each that the step reads
        """
        n, pool = len(rows), self._pool
        version = pool.version[rows]
        changed = (self._row[:n] != rows) | (self._version[:n] != version)
        for index in np.flatnonzero(changed).tolist():
            count = counts[index]
            self._table[index, :count] = pool.pages[rows[index], :count]
            self._count[index] = count
        self._row[:n], self._version[:n] = rows, version
        behind = np.flatnonzero(self._count[:n] < counts)
        while len(behind):
            page = self._count[behind]
            self._table[behind, page] = pool.pages[rows[behind], page]
            self._count[behind] += 1
            behind = behind[self._count[behind] < counts[behind]]
        return self._table[:n, : int(counts.max())]


class PageTables:
    """Two tables in turns."""

    def __init__(self, pool: ReqToTokenPool) -> None:
        self._next, self._last = PageTable(pool), PageTable(pool)

    def update(self, rows: Int64, counts: Int64) -> Int32:
        """See `PageTable.update`; valid until this was called twice more."""
        self._next, self._last = self._last, self._next
        return self._last.update(rows, counts)
