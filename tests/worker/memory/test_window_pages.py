"""Window pages compared with brute force: where a request can continue, and the order of
release."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_worker.memory.host_windows import HostWindows
from pando_worker.memory.page_allocator import Pages
from pando_worker.memory.window_pages import WindowPages
from pando_worker.memory.window_sight import WindowMemory, WindowSight


def window_pages(pages: int = 40, num_pages: int = 60) -> WindowPages:
    return WindowPages(pages, num_pages)


def sight_of(window: int, page_size: int, pages: int = 40) -> WindowSight:
    return WindowSight(WindowMemory(pages=pages, window=window, chunk_tokens=16), page_size)


def numbers(*pages: int) -> Pages:
    return np.array(pages, dtype=np.int32)


@given(
    present=st.lists(st.booleans(), max_size=30),
    window=st.integers(1, 20),
    page_size=st.sampled_from([1, 2, 4]),
)
def test_a_prefix_is_usable_as_far_as_the_next_token_sees_all_its_keys(
    present: list[bool], window: int, page_size: int
) -> None:
    sight = sight_of(window, page_size)

    def can_continue_from(count: int) -> bool:
        position = count * page_size  # of the next token
        seen = range(max(0, position - window + 1), position)
        return all(present[key // page_size] for key in seen)

    expected = max(count for count in range(len(present) + 1) if can_continue_from(count))
    assert sight.usable(np.array(present, dtype=np.bool_)) == expected
    assert sight.first_seen(expected) == max(0, expected * page_size + 1 - window) // page_size


@given(tokens=st.integers(1, 60), window=st.integers(1, 20), page_size=st.sampled_from([1, 2, 4]))
def test_what_is_kept_holds_what_is_seen_from_the_last_whole_page(
    tokens: int, window: int, page_size: int
) -> None:
    sight = sight_of(window, page_size)
    kept = sight.first_kept(tokens)
    for end in (tokens, tokens - 1):  # the last token may be dropped
        assert kept <= sight.first_seen(end // page_size)
        assert kept <= max(0, end + 1 - window) // page_size
    assert -(-tokens // page_size) - kept <= sight.most(tokens, 1)


def test_the_least_recently_unpinned_go_first_and_pinned_ones_stay() -> None:
    windows = window_pages(6, 12)
    old, new, pinned = numbers(0, 1), numbers(2, 3), numbers(4, 5)
    for pages in (old, new, pinned):
        windows.grow(pages)
    windows.unpin(old)
    windows.unpin(new)
    windows.grow(numbers(6, 7))
    assert (windows.window_of[old] == -1).all()
    assert (windows.window_of[new] >= 0).all()
    assert (windows.available, windows.num_cached) == (2, 2)
    windows.grow(numbers(8, 9))
    with pytest.raises(MemoryError):
        windows.grow(numbers(10))


def test_a_page_that_two_requests_see_stays_until_both_are_past_it() -> None:
    windows = window_pages(6)
    pages = numbers(7, 8)
    windows.grow(pages)
    windows.pin(pages)
    windows.unpin(pages)
    assert windows.num_pinned == 2
    with pytest.raises(ValueError, match="in use"):
        windows.drop(pages)
    windows.unpin(pages)
    windows.drop(pages)
    assert windows.allocator.num_free == 6
    windows.check_idle()


def test_moved_window_pages_fill_gaps_only() -> None:
    windows = window_pages(6)
    mine, cached = numbers(0, 1, 2), numbers(10, 11, 12)
    windows.grow(mine)
    windows.grow(numbers(11))
    before = windows.window_of.copy()
    windows.unpin(mine)
    windows.move(mine, cached)
    assert windows.window_of[cached].tolist() == before[[0, 11, 2]].tolist()
    assert windows.window_of[mine].tolist() == [-1, before[1], -1]


def test_a_lost_window_page_is_noticed_when_idle() -> None:
    windows = window_pages()
    windows.grow(numbers(3))
    with pytest.raises(RuntimeError, match="1 pages are pinned"):
        windows.check_idle()
    windows.unpin(numbers(3))
    windows.check_idle()
    windows.window_of[3] = -1
    with pytest.raises(RuntimeError, match="1 are neither free nor held"):
        windows.check_idle()


def test_too_few_for_one_window_are_refused() -> None:
    with pytest.raises(ValueError, match="3 window pages of 4 tokens cannot hold a window of 8"):
        sight_of(8, 4, pages=3)


def held_by_the_host() -> tuple[WindowPages, HostWindows]:
    """A device with room for six window pages, and a host with the window pages of three pages."""
    device = window_pages(6, 12)
    host = HostWindows(3, 20, device)
    device.grow(numbers(0, 1, 2))
    device.unpin(numbers(0, 1, 2))
    host.store(numbers(10, 11, 12), numbers(0, 1, 2))
    stores, loads = host.take_copies()
    assert stores is not None
    assert loads is None
    assert sorted(stores.device.tolist()) == sorted(device.window_of[[0, 1, 2]].tolist())
    device.drop(numbers(0, 1, 2))
    return device, host


def test_what_a_load_will_read_is_not_stored_over_on_the_host() -> None:
    device, host = held_by_the_host()
    host.hold(numbers(10, 11))
    device.grow(numbers(3, 4))
    device.unpin(numbers(3, 4))
    host.store(numbers(13, 14), numbers(3, 4))  # there is room for one: the last is kept
    assert host.kept.has(numbers(10, 11, 12, 13, 14)).tolist() == [True, True, False, False, True]
    device.grow(numbers(5, 6))
    host.load(numbers(5, 6), numbers(10, 11))
    stores, loads = host.take_copies()
    assert stores is not None
    assert loads is not None
    assert sorted(loads.host.tolist()) == sorted(host.kept.window_of[[10, 11]].tolist())
    assert not set(stores.host.tolist()) & set(loads.host.tolist())
    assert host.kept.num_pinned == 0
    assert host.kept.num_lost == 0


def test_copies_to_window_pages_that_are_released_before_they_run_are_dropped() -> None:
    device, host = held_by_the_host()
    device.grow(numbers(7))
    host.hold(numbers(10))
    host.load(numbers(7), numbers(10))
    device.unpin(numbers(7))
    device.drop(numbers(7))
    device.grow(numbers(8))
    device.unpin(numbers(8))
    host.kept.drop(numbers(11))
    host.store(numbers(15), numbers(8))
    host.kept.drop(numbers(15))
    assert host.take_copies() == (None, None)
