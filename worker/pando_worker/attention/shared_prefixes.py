"""Which rows of a batch begin with the same pages, and so may attend to them together.

Keys that many rows share are then read once for all of them (cascade attention, flashinfer's blog
of February 2024; ChunkAttention, arXiv:2402.15220): the rows' queries attend to the shared pages as
one, each row attends to the rest of its own, and the two results are merged by the weights that
their softmax had, which is exact.
"""

from dataclasses import dataclass

import numpy as np

from pando_worker.batch import ForwardBatch, Int64

# Groups inside groups that are looked at. A row shares with one group only, so deep trees are cut
# somewhere anyway.
MOST_NESTED = 32


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    rows: Int64  # of the batch, at least two, ascending
    pages: int  # which all of them begin with

    @property
    def saved_pages(self) -> int:
        """That need not be read again."""
        return (len(self.rows) - 1) * self.pages


def shared_prefixes(batch: ForwardBatch, at_least: int) -> list[SharedPrefix]:
    """Groups of rows, no row in two of them, that together save the most pages.

    Pages that a row still writes to are never shared, so each row has tokens beyond its group's.

    Args:
        at_least: pages that they have to save; none are returned where it is less.
    """
    whole = (batch.seq_lens - batch.extend_lens) // batch.page_size  # pages of cached tokens
    rows = np.flatnonzero(whole > 0)
    groups = _alike(batch, rows, 0)
    # Most batches end here: what long prefixes could save at best is soon counted.
    if sum((len(group) - 1) * int(whole[group].max()) for group in groups) < at_least:
        return []
    found = [shared for group in groups for shared in _best(batch, whole, group, MOST_NESTED)]
    return found if sum(shared.saved_pages for shared in found) >= at_least else []


def _best(
    batch: ForwardBatch, whole: Int64, rows: Int64, nested: int, start: int = 0
) -> list[SharedPrefix]:
    """Of rows that have at least one page, and the first `start` pages, in common."""
    shortest = int(whole[rows].min())
    table = batch.page_table[rows, start:shortest]
    differs = (table != table[0]).any(axis=0)
    common = start + int(differs.argmax()) if differs.any() else shortest
    together = SharedPrefix(rows, common)
    if nested == 0:
        return [together]
    longer = rows[whole[rows] > common]
    apart = [
        shared
        for group in _alike(batch, longer, common)
        for shared in _best(batch, whole, group, nested - 1, common)
    ]
    if sum(shared.saved_pages for shared in apart) > together.saved_pages:
        return apart
    return [together]


def _alike(batch: ForwardBatch, rows: Int64, column: int) -> list[Int64]:
    """Those of `rows` that have a page in common there, by that page."""
    if len(rows) < 2:
        return []
    pages = batch.page_table[rows, column]
    order = np.argsort(pages, kind="stable")
    cuts = np.flatnonzero(np.diff(pages[order])) + 1
    starts, ends = np.append(0, cuts), np.append(cuts, len(rows))
    several = np.flatnonzero(ends - starts > 1)  # mostly there are none, of many rows
    bounds = zip(starts[several].tolist(), ends[several].tolist(), strict=True)
    return [rows[order[start:end]] for start, end in bounds]
