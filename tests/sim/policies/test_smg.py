"""SMG's policy, case by case from its documentation."""

from dataclasses import replace

import pytest

from pando_sim.policies import smg
from tests.sim.fleet.world import SPEC
from tests.sim.policies.routers import fleet, went


def test_a_balanced_router_follows_the_longest_known_beginning() -> None:
    known = fleet("a", "b", loads={"a": 1})
    policy = smg.SMG.make(known, SPEC)
    assert went(policy, known, 1, 2, 3) == "b"  # unknown: the least loaded
    known.loads["b"] = 60
    assert went(policy, known, 1, 2, 3, 4) == "b"


@pytest.mark.parametrize(("known_chunks", "to"), [(3, "a"), (4, "b")])
def test_a_match_counts_above_three_tenths_of_the_prompt(known_chunks: int, to: str) -> None:
    known = fleet("a", "b", loads={"a": 1})
    policy = smg.SMG.make(known, SPEC)
    assert went(policy, known, *range(known_chunks)) == "b"
    known.loads = {"b": 1}
    assert went(policy, known, *range(known_chunks), *range(50, 60 - known_chunks)) == to


@pytest.mark.parametrize(
    ("loads", "to"),
    [
        ({"a": 64, "b": 0}, "a"),  # 64 above is not more than 64
        ({"a": 65, "b": 0}, "b"),
        ({"a": 195, "b": 130}, "a"),  # 65 above, and 1.5 times is not more than 1.5 times
        ({"a": 196, "b": 130}, "b"),
    ],
)
def test_load_is_uneven_when_both_thresholds_are_passed(loads: dict[str, int], to: str) -> None:
    known = fleet("a", "b")
    policy = smg.SMG.make(known, SPEC)
    assert went(policy, known, 1, 2) == "a"
    known.loads = loads
    assert went(policy, known, 1, 2) == to


def test_what_an_uneven_load_sent_elsewhere_is_known_there_too() -> None:
    known = fleet("a", "b")
    policy = smg.SMG.make(known, SPEC)
    assert went(policy, known, 1) == "a"
    known.loads = {"a": 100}
    assert went(policy, known, 1, 2, 3) == "b"
    known.loads = {}
    assert went(policy, known, 1, 2, 3, 4) == "b"  # the longest beginning is b's
    assert went(policy, known, 1) == "a"  # it got it first


def test_each_router_has_a_tree_of_its_own() -> None:
    one, other = fleet("a", "b"), fleet("a", "b", loads={"a": 1})
    assert went(smg.SMG.make(one, SPEC), one, 1, 2) == "a"
    assert went(smg.SMG.make(other, SPEC), other, 1, 2) == "b"


def test_a_worker_that_is_gone_is_forgotten() -> None:
    known = fleet("a", "b", "c", loads={"a": 2, "b": 1})
    policy = smg.SMG.make(known, SPEC)
    assert went(policy, known, 1, 2) == "c"
    del known.beats["c"]
    assert went(policy, known, 1, 2) == "a"  # the first one
    assert went(policy, known, 1, 2) == "b"  # no worker has it any more: the least loaded


def test_the_tree_is_cut_once_a_minute_to_its_most_recent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smg, "MAX_TREE_BYTES", 3 * 256)
    known = fleet("a", "b")
    policy = smg.SMG.make(known, SPEC)
    assert went(policy, known, 1, 2) == "a"
    assert went(policy, known, 1, 3, 4) == "a"
    known.loads = {"a": 1}
    known.time_s = 59.9
    assert went(policy, known, 1, 2) == "a"
    known.time_s = 60.0  # of four chunks the least recent leaf goes: 4, behind 1 and 3
    assert went(policy, known, 1, 3, 4, 6, 7, 8, 9) == "b"  # 2 of 7 are known
    assert went(policy, known, 1, 3, 5, 6) == "a"  # and these two are still known to be there


def test_workers_are_known_by_what_is_allowed_now() -> None:
    known = fleet("a", "b")
    policy = smg.SMG.make(known, SPEC)
    assert went(policy, known, 1, 2) == "a"
    known.beats["a"] = replace(known.beats["a"], running=3)
    assert went(policy, known, 1, 2, without="a") == "b"
    assert went(policy, known, 1, 2) == "a"
