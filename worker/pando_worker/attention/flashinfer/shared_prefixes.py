"""Finds rows of a batch that begin with the same pages, so that they can attend to them together.

Shared keys are then read once for all rows (cascade attention, flashinfer's blog of February 2024;
ChunkAttention, arXiv:2402.15220): the queries of all rows attend to the shared pages in one call,
each row attends to its remaining pages, and the two results are merged with their softmax weights.
The result is exact.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pando_worker.attention.flashinfer.calls import new_indptr
from pando_worker.attention.paged_rows import PagedRows
from pando_worker.batch import ForwardBatch, Int32, Int64
from pando_worker.tensors.transfer import to_device

# Depth of nested groups that is searched. A row joins only one group, so a deep tree is cut at some
# level anyway.
MOST_NESTED = 32


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    rows: Int64  # indices in the batch, at least two, ascending
    pages: int  # number of leading pages that all of them share

    @property
    def saved_pages(self) -> int:
        """Pages that need not be read again."""
        return (len(self.rows) - 1) * self.pages


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """How the rows of a batch attend to the prefixes that they share.

    Attributes:
        rows: one for each prefix, with the new tokens of all rows that share it
        pages: int32, that these list
        starts: [prefixes + 1], of each one's new tokens
        tokens: of the batch, in this order; None: all, in their own
        skipped: [rows of the batch], pages that each need not read alone
    """

    rows: PagedRows
    pages: Tensor
    starts: Int32
    tokens: Tensor | None
    skipped: Int32


def shared_prefixes(batch: ForwardBatch, at_least: int) -> list[SharedPrefix]:
    """Disjoint groups of rows that together save the most pages.

    Pages that a row still writes to are never shared, so each row has tokens behind the shared
    ones.

    Args:
        at_least: minimum of saved pages; if the groups save less, none are returned.
    """
    if batch.page_table.size < at_least:  # all pages of all rows
        return []
    whole = (batch.seq_lens - batch.extend_lens) // batch.page_size  # pages of cached tokens
    if int(whole.sum()) < at_least:
        return []
    rows = np.flatnonzero(whole > 0)
    groups = _alike(batch, rows, 0)
    # Most batches end here: the upper bound of what could be saved is cheap to compute.
    if sum((len(group) - 1) * int(whole[group].max()) for group in groups) < at_least:
        return []
    found = [shared for group in groups for shared in _best(batch, whole, group, MOST_NESTED)]
    return found if sum(shared.saved_pages for shared in found) >= at_least else []


def _best(
    batch: ForwardBatch, whole: Int64, rows: Int64, nested: int, start: int = 0
) -> list[SharedPrefix]:
    """The best groups among rows that share at least one page and their first `start` pages."""
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
    """Groups of `rows` that have the same page in `column`."""
    if len(rows) < 2:
        return []
    pages = batch.page_table[rows, column]
    order = np.argsort(pages, kind="stable")
    cuts = np.flatnonzero(np.diff(pages[order])) + 1
    starts, ends = np.append(0, cuts), np.append(cuts, len(rows))
    several = np.flatnonzero(ends - starts > 1)  # usually empty, even for many rows
    bounds = zip(starts[several].tolist(), ends[several].tolist(), strict=True)
    return [rows[order[start:end]] for start, end in bounds]


def together(batch: ForwardBatch, prefixes: list[SharedPrefix], device: torch.device) -> Together:
    lengths = np.array([prefix.pages for prefix in prefixes], dtype=np.int32)
    counts = [int(batch.extend_lens[prefix.rows].sum()) for prefix in prefixes]
    rows = PagedRows(
        firsts=np.zeros(len(prefixes), dtype=np.int32),
        indptr=new_indptr(lengths),
        last_lens=np.full(len(prefixes), batch.page_size, dtype=np.int32),
        lengths=lengths * batch.page_size,
    )
    pages = np.concatenate([batch.page_table[p.rows[0], : p.pages] for p in prefixes])
    skipped = np.zeros(len(batch.seq_lens), dtype=np.int32)
    for prefix in prefixes:
        skipped[prefix.rows] = prefix.pages
    tokens = _tokens(batch, prefixes)
    in_order = np.array_equal(tokens, np.arange(len(batch.input_ids)))
    return Together(
        rows,
        to_device(pages, device),
        new_indptr(np.array(counts, dtype=np.int32)),
        None if in_order else to_device(tokens, device),
        skipped,
    )


def _tokens(batch: ForwardBatch, prefixes: list[SharedPrefix]) -> Int64:
    """The tokens of the groups' rows, group after group."""
    starts = new_indptr(batch.extend_lens).astype(np.int64)
    ranges = [np.arange(starts[row], starts[row + 1]) for p in prefixes for row in p.rows]
    return np.concatenate(ranges)
