"""Rows cut where attention changes between causal and whole, for models in which an image's tokens
see each other.

A kernel without a mask of its own is either causal, where each new token sees the keys up to
itself, or each new token sees all keys. Both hold for parts of a row: a segment of text is causal
and an image is not, if each is taken for a row that ends with it.
"""

from dataclasses import dataclass, replace

import numpy as np

from pando_worker.batch import ForwardBatch, Int64


@dataclass(frozen=True, slots=True)
class Segments:
    """
    Attributes:
        batch: each segment as a row; of its arrays those that say which keys and values it reads
        rows: [segments], of the whole batch, to which they belong
        tokens: [their tokens], as indices into those of the whole batch, segment after segment
    """

    batch: ForwardBatch
    rows: Int64
    tokens: Int64


def cut(batch: ForwardBatch, first: int) -> tuple[Segments, Segments]:
    """The segments of the rows from `first` on: those that are causal, and the images whose tokens
    see each other. `batch.seen` must not be None."""
    seen = batch.seen
    assert seen is not None
    firsts = np.cumsum(batch.extend_lens, dtype=np.int64) - batch.extend_lens
    tokens = np.arange(batch.extend_lens[:first].sum(), len(seen))
    # Tokens that see as many keys as their neighbour are of one image: a text's see one more each.
    row_of = np.repeat(np.arange(first, len(firsts)), batch.extend_lens[first:])
    is_next = (np.diff(row_of) == 0) & (np.diff(seen[tokens]) == 0)
    is_whole = np.append(is_next, False) | np.append(False, is_next)
    begins = np.ones(len(tokens), dtype=np.bool_)
    # A segment goes on within an image, and from one token of text to the next.
    begins[1:] = ~(is_next | (~is_whole[1:] & ~is_whole[:-1] & (np.diff(row_of) == 0)))
    starts = np.flatnonzero(begins)
    lengths = np.diff(np.append(starts, len(tokens)))

    def of(chosen: Int64) -> Segments:
        rows, counts = row_of[starts[chosen]], lengths[chosen]
        last = tokens[starts[chosen]] + counts - 1
        table = batch.window_table
        part = replace(
            batch,
            extend_lens=counts.astype(np.int32),
            seq_lens=seen[last],
            page_table=batch.page_table[rows],
            req_rows=batch.req_rows[rows],
            window_table=None if table is None else table[rows],
        )
        offsets = np.repeat(np.cumsum(counts) - counts, counts)
        inside = np.arange(counts.sum()) - offsets + np.repeat(tokens[starts[chosen]], counts)
        return Segments(part, rows, inside)

    whole = is_whole[starts]
    return of(np.flatnonzero(~whole)), of(np.flatnonzero(whole))
