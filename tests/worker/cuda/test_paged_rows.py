"""Page lists and shared prefixes, compared with a search through every row."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.attention.flashinfer.shared_prefixes import SharedPrefix, shared_prefixes
from pando_worker.attention.paged_rows import first_pages_seen, paged_rows, pages_of
from pando_worker.batch import ForwardBatch
from tests.examples import examples
from tests.worker.model.paged import greedy


def batch_of(rows: list[tuple[int, int]], table: list[list[int]], page_size: int) -> ForwardBatch:
    """Rows of (cached, new) tokens with these pages."""
    new = sum(count for _, count in rows)
    width = max(map(len, table))
    return ForwardBatch(
        input_ids=np.zeros(new, dtype=np.int64),
        positions=np.concatenate([np.arange(c, c + n) for c, n in rows]),
        out_slots=np.zeros(new, dtype=np.int64),
        extend_lens=np.array([n for _, n in rows], dtype=np.int32),
        seq_lens=np.array([c + n for c, n in rows], dtype=np.int32),
        page_table=np.array([row + [0] * (width - len(row)) for row in table], dtype=np.int32),
        page_size=page_size,
        req_rows=np.arange(len(rows)),
        sample_rows=np.arange(len(rows)),
        sampling=greedy(len(rows)),
    )


LENGTHS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), min_size=1, max_size=6)


@given(rows=LENGTHS, page_size=st.integers(1, 9), window=st.none() | st.integers(1, 30))
def test_rows_list_the_pages_of_every_key_that_a_new_token_sees(
    rows: list[tuple[int, int]], page_size: int, window: int | None
) -> None:
    table = [
        [100 * index + page for page in range(-(-(cached + new) // page_size))]
        for index, (cached, new) in enumerate(rows)
    ]
    batch = batch_of(rows, table, page_size)
    firsts = first_pages_seen(batch, window)
    listed = paged_rows(batch, slice(None), firsts)
    pages = pages_of(batch, slice(None), listed, released=False)
    for index, (cached, new) in enumerate(rows):
        first_key = 0 if window is None else max(0, cached + 1 - window)
        expected = table[index][first_key // page_size :]
        own = slice(listed.indptr[index], listed.indptr[index + 1])
        assert pages[own].tolist() == expected
        in_pages = (len(expected) - 1) * page_size + listed.last_lens[index]
        assert in_pages == listed.lengths[index]
        assert first_key // page_size * page_size + in_pages == cached + new


@st.composite
def forests(draw: st.DrawFn) -> ForwardBatch:
    """Rows whose pages branch off each other at random depths."""
    page_size = draw(st.integers(1, 3))
    rows: list[list[int]] = []
    fresh = iter(range(1, 10_000))
    for _ in range(draw(st.integers(1, 6))):
        kept: list[int] = []
        branches = draw(st.booleans())
        if rows and branches:
            other = draw(st.sampled_from(rows))
            kept = other[: draw(st.integers(0, len(other)))]
        rows.append(kept + [next(fresh) for _ in range(draw(st.integers(1, 4)))])
    # The last page holds the new tokens; earlier ones are cached, shared or not.
    lengths = [((len(row) - 1) * page_size, 1) for row in rows]
    return batch_of(lengths, rows, page_size)


def common(batch: ForwardBatch, rows: tuple[int, ...]) -> int:
    whole = (batch.seq_lens - batch.extend_lens) // batch.page_size
    pages = 0
    while all(pages < whole[row] for row in rows) and (
        len({int(batch.page_table[row, pages]) for row in rows}) == 1
    ):
        pages += 1
    return pages


def most_saved(batch: ForwardBatch, rows: frozenset[int]) -> int:
    """The maximum over all groupings of the rows."""
    if not rows:
        return 0
    first = min(rows)
    others = rows - {first}
    best = most_saved(batch, others)
    for size in range(1, len(others) + 1):
        for mates in combinations(sorted(others), size):
            pages = common(batch, (first, *mates))
            if pages:
                best = max(best, size * pages + most_saved(batch, others - set(mates)))
    return best


@given(batch=forests())
def test_groups_share_their_first_pages_and_are_apart(batch: ForwardBatch) -> None:
    groups = shared_prefixes(batch, at_least=1)
    rows = [row for group in groups for row in group.rows.tolist()]
    assert len(rows) == len(set(rows))
    for group in groups:
        assert len(group.rows) > 1
        assert 0 < group.pages == common(batch, tuple(group.rows.tolist()))


@settings(max_examples=examples(50))
@given(batch=forests())
def test_no_other_groups_would_save_much_more(batch: ForwardBatch) -> None:
    """Either a branch of the tree is a group, or its parts are; the rest of the branch then shares
    nothing, although it could. With few rows this loses less than half."""
    saved = sum(group.saved_pages for group in shared_prefixes(batch, at_least=1))
    best = most_saved(batch, frozenset(range(len(batch.seq_lens))))
    assert best / 2 <= saved <= best


def test_groups_are_returned_only_where_they_save_enough() -> None:
    table = [[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6, 7], [8, 9, 10, 11]]
    batch = batch_of([(12, 1)] * 3 + [(13, 2)], table, 4)
    (group,) = shared_prefixes(batch, at_least=4)
    assert (group.rows.tolist(), group.pages) == ([0, 1, 2], 2)
    assert group.saved_pages == 4
    assert shared_prefixes(batch, at_least=5) == []


def test_a_page_that_is_still_written_to_is_not_shared() -> None:
    batch = batch_of([(5, 1), (5, 1)], [[1, 2], [1, 2]], 4)
    (group,) = shared_prefixes(batch, at_least=1)
    assert group.pages == 1


@pytest.mark.parametrize("rows", [1, 400])
def test_many_rows_that_branch_off_one_by_one_are_no_trouble(rows: int) -> None:
    table = [[*range(1, index + 2), 10_000 + index] for index in range(0, 2 * rows, 2)]
    table += [[*row[:-1], 50_000 + row[-1]] for row in table]
    batch = batch_of([(len(row) - 1, 1) for row in table], table, 1)
    groups: list[SharedPrefix] = shared_prefixes(batch, at_least=1)
    assert groups
