"""`PageTables`: the page tables of a step, updated by what has changed since they were used last.

A batch's arrays stay unchanged until its result is read, and the next batch is built before that.
So two sets of them take turns.
"""

import numpy as np

from pando_worker.batch import Int32, Int64
from pando_worker.memory.req_pool import ReqToTokenPool
from pando_worker.memory.window_pages import WindowPages

Tables = tuple[Int32, Int32 | None]
"""A page table, and one of window pages."""

_NOBODY = -1
# Pages that a row may have got since then for all such rows to be updated together: it has one more
# in every second step, or two with pages of one token.
_FEW = 2


class PageTable:
    def __init__(self, pool: ReqToTokenPool, windows: WindowPages | None) -> None:
        self._pool = pool
        self._windows = windows
        # Most of both is never written, and takes no memory.
        self._table: Int32 = np.zeros_like(pool.pages)
        self._window_table: Int32 = np.zeros_like(pool.pages) if windows else self._table
        size = len(pool.pages)
        # What each of their rows holds: which row of the pool, in which version, how many pages,
        # and the first of these whose window page it has.
        self._row: Int64 = np.full(size, _NOBODY, dtype=np.int64)
        self._version: Int64 = np.zeros(size, dtype=np.int64)
        self._count: Int64 = np.zeros(size, dtype=np.int64)
        self._first: Int64 = np.zeros(size, dtype=np.int64)

    def update(self, rows: Int64, counts: Int64, firsts: Int64 | None) -> Tables:
        """The pages of some rows of the pool, and their window pages: views of [rows, most pages],
        with valid pages behind a row's own, and -1 for window pages before its first.

        Args:
            rows: [n], of the pool
            counts: [n], the pages of each that the step reads
            firsts: [n], the first page whose window page the step reads; None without windows
        """
        n, pool = len(rows), self._pool
        version = pool.version[rows]
        changed = (self._row[:n] != rows) | (self._version[:n] != version)
        self._row[:n], self._version[:n] = rows, version
        self._count[:n][changed] = self._first[:n][changed] = 0
        self._add(rows, counts)
        table = self._table[:n, : int(counts.max())]
        if firsts is None:
            return table, None
        self._leave_behind(firsts)
        return table, self._window_table[:n, : table.shape[1]]

    def _add(self, rows: Int64, counts: Int64) -> None:
        """Add the pages that the rows have got."""
        held, pages = self._count[: len(rows)], self._pool.pages
        for _ in range(_FEW):
            behind = np.flatnonzero(held < counts)
            at, page = rows[behind], held[behind]
            self._put(behind, page, pages[at, page])
            held[behind] += 1
        for index in np.flatnonzero(held < counts).tolist():
            added = slice(held[index], counts[index])
            self._put(index, added, pages[rows[index], added])
            held[index] = counts[index]

    def _put(self, index: "Int64 | int", page: "Int64 | slice", pages: Int32) -> None:
        self._table[index, page] = pages
        if self._windows:
            self._window_table[index, page] = self._windows.window_of[pages]

    def _leave_behind(self, firsts: Int64) -> None:
        """Forget the window pages that the rows no longer read."""
        held = self._first[: len(firsts)]
        for _ in range(_FEW):
            passed = np.flatnonzero(held < firsts)
            self._window_table[passed, held[passed]] = -1
            held[passed] += 1
        for index in np.flatnonzero(held < firsts).tolist():
            self._window_table[index, held[index] : firsts[index]] = -1
            held[index] = firsts[index]


class PageTables:
    """Two in turns."""

    def __init__(self, pool: ReqToTokenPool, windows: WindowPages | None) -> None:
        self._next, self._last = PageTable(pool, windows), PageTable(pool, windows)

    def update(self, rows: Int64, counts: Int64, firsts: Int64 | None) -> Tables:
        """See `PageTable.update`; valid until this was called twice more."""
        self._next, self._last = self._last, self._next
        return self._last.update(rows, counts, firsts)
