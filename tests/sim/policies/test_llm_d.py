"""llm-d's scorers and their weights, computed by hand."""

import pytest

from pando_sim.policies import llm_d
from tests.sim.fleet.world import SPEC
from tests.sim.policies.routers import ask, beat, fleet, went


def test_queues_are_scored_between_the_longest_and_the_shortest() -> None:
    beats = [beat("a", waiting=2), beat("b", waiting=4), beat("c", waiting=10)]
    assert llm_d.queue_scores(beats) == [1.0, 0.75, 0.0]
    assert llm_d.queue_scores(beats[:1]) == [1.0]  # equal ones are all 1


def test_only_what_is_pinned_is_used() -> None:
    beats = [beat("a", pinned_tokens=4_000, cached_tokens=9_000), beat("b")]
    assert llm_d.kv_scores(beats) == [0.75, 1.0]


@pytest.mark.parametrize(
    ("pinned", "waiting", "to"),
    [
        (0, 0, "a"),  # 2 + 2 + 3 against 2 + 2 + 0
        (16_000, 0, "a"),  # a full pool loses 2: 5 against 4
        (0, 1, "a"),  # the longest queue loses 2: 5 against 4
        (7_900, 1, "a"),  # 4.0125 against 4
        (8_100, 1, "b"),  # 3.9875 against 4
    ],
)
def test_the_weighted_sum_decides(pinned: int, waiting: int, to: str) -> None:
    known = fleet("a", "b")
    policy = llm_d.LLM_D.make(known, SPEC)
    assert went(policy, known, 1, 2) == "a"
    known.time_s = 1.0
    known.beats["a"] = beat("a", pinned_tokens=pinned, waiting=waiting)
    assert went(policy, known, 1, 2) == to


def test_equals_take_turns() -> None:
    known = fleet("a", "b", "c")
    policy = llm_d.LLM_D.make(known, SPEC)
    assert [went(policy, known, 10 + at) for at in range(4)] == ["a", "b", "c", "a"]


def test_metrics_are_as_old_as_a_scrape() -> None:
    known = fleet("a", "b")
    policy = llm_d.LLM_D.make(known, SPEC)
    assert went(policy, known, 1) == "a"
    known.beats["b"] = beat("b", waiting=3)
    known.time_s = 0.049
    assert went(policy, known, 2) == "b"  # its turn: the queue is not yet known
    known.time_s = 0.05
    assert went(policy, known, 3) == "a"
    assert known.looks == 4


def test_the_index_holds_as_many_blocks_as_the_engine() -> None:
    known = fleet("a", "b")
    known.beats["a"] = beat("a", capacity_tokens=64)
    policy = llm_d.LLM_D.make(known, SPEC)
    assert ask(policy, known, 1, 2, 3).replica == "a"
    assert went(policy, known, 9) == "b"
    place = ask(policy, known, 1, 2, 3)  # 3 of 4
    assert (place.replica, place.matched_chunks) == ("a", 3)
    ask(policy, known, 1, 2, 3, 4, 5)  # its root is the least recent block and is evicted first
    assert ask(policy, known, 1, 2, 3, 4, 5).matched_chunks == 0


def test_a_replica_that_is_gone_is_forgotten() -> None:
    known = fleet("a", "b")
    policy = llm_d.LLM_D.make(known, SPEC)
    assert went(policy, known, 1, 2) == "a"
    del known.beats["a"]
    assert went(policy, known, 7) == "b"
    known.beats["a"] = beat("a")
    assert ask(policy, known, 1, 2).matched_chunks == 0
