"""The host tier with separate window pages: which parts of a prefix come back."""

from typing import Any

import pytest

from tests.worker.scheduler.hash_model import expected_tokens
from tests.worker.scheduler.world import World

pytestmark = pytest.mark.usefixtures("overlap")

WINDOW = 10
SEEN = 3  # pages of 4 that a request sees if it continues from a whole page


def world(window_pages: int, host_window_pages: int, *, pages: int = 16, **settings: Any) -> World:
    return World(
        pages=pages,
        page_size=4,
        window=WINDOW,
        window_pages=window_pages,
        chunked_prefill_size=16,
        host_pages=100,
        host_window_pages=host_window_pages,
        **settings,
    )


def run(made: World, rid: str, prompt: list[int]) -> int:
    """Run to the end; returns the request's cached tokens."""
    made.send(rid, prompt, max_new_tokens=3)
    while not made.scheduler.is_idle:
        made.step()
        made.check_ownership()
    assert made.tokens[rid] == expected_tokens(prompt, 3, WINDOW)
    return made.cached[rid]


def conversation(number: int, length: int = 48) -> list[int]:
    return [number] * length


def window_pages_loaded(made: World) -> int:
    return sum(len(batch.window_loads.host) for batch in made.batches if batch.window_loads)


def test_a_prefix_comes_back_with_the_window_pages_that_are_seen_and_no_others() -> None:
    made = world(window_pages=16, host_window_pages=100)
    for number in (1, 2, 3):
        assert run(made, f"first {number}", conversation(number)) == 0
    assert run(made, "again", [*conversation(1), 9]) == 48
    assert made.scheduler.stats().host_loaded_tokens_total >= 32
    assert window_pages_loaded(made) == SEEN


def test_a_prefix_is_hit_as_far_as_the_host_has_window_pages() -> None:
    """It has room for the window pages of one conversation; of the others it has only the pages
    without windows."""
    made = world(window_pages=16, host_window_pages=12)
    for number in (1, 2, 3, 4):
        run(made, f"first {number}", conversation(number))
    assert made.cached_len(conversation(1)) == 48
    assert run(made, "again", conversation(1)) == 0
    assert run(made, "hit", [*conversation(1), 9]) == 48


def test_window_pages_that_the_device_gave_up_are_loaded_for_pages_that_it_still_has() -> None:
    """With write-through, so that the host has the pages of both prefixes."""
    made = world(
        window_pages=7, host_window_pages=100, pages=100, host_write="write-through-selective"
    )
    for turn in range(3):
        run(made, f"{turn}", [*conversation(1, 20), turn])
    run(made, "others", conversation(2, 60))
    before = window_pages_loaded(made), made.scheduler.stats().host_loaded_tokens_total
    assert run(made, "again", [*conversation(1, 20), 9]) == 20
    assert window_pages_loaded(made) == before[0] + SEEN
    assert made.scheduler.stats().host_loaded_tokens_total == before[1]


def test_requests_of_one_step_share_what_is_loaded() -> None:
    made = world(window_pages=16, host_window_pages=100, pages=24)
    for number in (1, 2, 3):
        run(made, f"first {number}", conversation(number))
    for tail in (7, 8):
        made.send(f"{tail}", [*conversation(1), tail], max_new_tokens=3)
    made.run()
    for tail in (7, 8):
        assert made.tokens[f"{tail}"] == expected_tokens([*conversation(1), tail], 3, WINDOW)
        assert made.cached[f"{tail}"] == 48
    assert window_pages_loaded(made) == SEEN


def test_an_abort_before_the_copies_run_leaves_no_page_behind() -> None:
    for steps in range(6):
        made = world(window_pages=16, host_window_pages=12)
        for number in (1, 2, 3):
            run(made, f"first {number}", conversation(number))
        made.send("gone", [*conversation(1), 9], max_new_tokens=3)
        made.send("stays", conversation(4), max_new_tokens=3)
        for _ in range(steps):
            made.step()
        made.abort("gone")
        made.run()
        made.check_ownership()
        made.kv.check_idle()
        assert made.tokens["stays"] == expected_tokens(conversation(4), 3, WINDOW)
        assert made.flush()
        made.kv.check_idle()
