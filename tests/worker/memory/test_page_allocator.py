"""The free list allocates each page once, and accepts only allocated pages."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pando_worker.memory.page_allocator import PageAllocator
from tests.examples import examples

NUM_PAGES = 12


@settings(max_examples=examples(100))
@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=30))
def test_a_page_has_one_owner_whatever_is_taken_and_given_back(
    steps: list[tuple[bool, int]],
) -> None:
    told: list[int] = []
    allocator = PageAllocator(NUM_PAGES, lambda pages: told.extend(pages.tolist()))
    held: list[np.ndarray] = []
    given_back: list[int] = []
    for take, count in steps:
        if take and count <= allocator.num_free:
            held.append(allocator.alloc(count))
            assert held[-1].dtype == np.int32
        elif not take:  # several at once
            parts, held = held[:count], held[count:]
            given_back.extend(page for part in parts for page in part.tolist())
            allocator.free(*parts)
        owned = [page for pages in held for page in pages.tolist()]
        assert len(set(owned)) == len(owned) == NUM_PAGES - allocator.num_free
        assert set(owned) <= set(range(NUM_PAGES))
        assert told == given_back


def test_pages_freed_last_are_taken_first() -> None:
    allocator = PageAllocator(4)
    first, second = allocator.alloc(1), allocator.alloc(1)
    allocator.free(second)
    allocator.free(first)
    assert allocator.alloc(1) == first


def test_a_page_freed_twice_is_refused_and_nothing_is_freed() -> None:
    told: list[int] = []
    allocator = PageAllocator(4, lambda pages: told.extend(pages.tolist()))
    first, second = allocator.alloc(2), allocator.alloc(2)
    allocator.free(first)
    del told[:]
    with pytest.raises(ValueError, match=rf"freed twice: \[{first[0]}\]"):
        allocator.free(second[:1], first[:1])
    assert not told
    with pytest.raises(ValueError, match="freed twice: 3, and only 2 were taken"):
        allocator.free(first, second[:1])
    assert allocator.num_free == 2
    allocator.free(second)
    assert sorted(allocator.alloc(4).tolist()) == [0, 1, 2, 3]


def test_a_page_named_twice_in_one_call_is_found_when_it_is_looked_for() -> None:
    allocator = PageAllocator(6)
    pages = allocator.alloc(4)
    assert allocator.num_twice == 0
    allocator.free(pages[:2], pages[1:2])
    assert allocator.num_twice == 1


def test_more_pages_than_are_free_are_refused() -> None:
    with pytest.raises(MemoryError, match="5 pages requested, 4 of 4 free"):
        PageAllocator(4).alloc(5)
