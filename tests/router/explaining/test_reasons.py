"""The words of an explanation."""

import pytest

from pando_fleet.redis.layout.rows import Candidate, Crowded
from pando_router.explaining.reasons import choice, seconds, waits_for_memory


def candidate(replica: str, **terms: float) -> Candidate:
    fields = dict.fromkeys(Candidate.__struct_fields__, 0)
    named = {"replica": replica, "url": "", "incarnation": "", "full": False}
    return Candidate(**fields | named | terms)  # type: ignore[arg-type]


def test_a_choice_is_said_in_plain_words() -> None:
    near = candidate("worker-0", matched_tokens=112, work_s=0.015, cost_s=0.015)
    far = candidate("worker-1", wait_s=1.3, queue=3.0, cost_s=1.4)
    assert choice([near, far], 136) == (
        "worker-0: 112 of 136 tokens cached, nobody waits: 15 ms; worker-1 would take 1.4 s"
    )


def test_each_delay_is_named() -> None:
    one = candidate(
        "a",
        wait_s=0.25,
        queue=2.2,
        kv_wait_s=1.5,
        pinned_tokens=900,
        capacity_tokens=1000,
        evict_s=0.02,
        pool_s=0.5,
        adapter_wait_s=0.1,
        adapter_load_s=2.0,
        adapter_evict_s=0.3,
        cost_s=12.345,
    )
    assert choice([one]) == (
        "a: 0 tokens cached, 250 ms behind 2 that wait, 1.5 s until KV memory is free (900 of 1000"
        " tokens pinned), 100 ms until a slot for its adapter is free, 2 s to load its adapter,"
        " 300 ms if the adapter that gives way is needed again, 20 ms if what it evicts is needed"
        " again, 500 ms for those that wait in the pool: 12.3 s"
    )


def test_more_is_never_cached_than_there_is() -> None:
    assert "100 of 100 tokens cached" in choice([candidate("a", matched_tokens=128)], 100)


def test_full_replicas_and_none_are_said_to_be_that() -> None:
    assert choice([]) == "no candidate is fresh and ready by Redis's clock"
    full = candidate("a", full=True)
    assert "wait in the queue" in choice([full])
    assert "would take" not in choice([candidate("b"), full])


@pytest.mark.parametrize(
    ("is_back", "is_behind", "last"),
    [
        (True, False, "this one's conversation was evicted"),
        (False, False, "this one is new"),
        (False, True, "this one is new, behind one that waits whose conversation was evicted"),
    ],
)
def test_what_a_session_waits_for_is_said(is_back: bool, is_behind: bool, last: str) -> None:
    crowded = Crowded(
        working_set_tokens=5_900_000,
        room_tokens=6_000_000,
        active=3,
        is_back=is_back,
        is_behind=is_behind,
    )
    assert waits_for_memory(crowded) == (
        f"waits: 3 sessions resume first, working set 5,900,000 of 6,000,000 tokens, and {last}"
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0, "0 ms"), (0.00012, "0.12 ms"), (0.0153, "15.3 ms"), (0.9996, "1 s"), (83.26, "83.3 s")],
)
def test_seconds_have_three_digits(value: float, words: str) -> None:
    assert seconds(value) == words
