"""Plans while a rollout replaces pods."""

from dataclasses import replace

from pando_fleet.records.marks import MarkKind
from pando_operator.lifecycle.actions import SetReplicas
from pando_operator.lifecycle.choice import is_open
from pando_operator.lifecycle.pods import PodView, Standing
from tests.operator.lifecycle.planned import (
    NOW,
    actions,
    drain_marks,
    drained,
    leaves,
    mark,
    pod,
    starting,
)


def rolling(old: int, *new: PodView) -> list[PodView]:
    """Serving pods a, b, … of an old template, and new ones."""
    names = "abcdefgh"[:old]
    return [
        *(pod(name, revision="1", outdated=True) for name in names),
        *(replace(one, revision="2", created=NOW - 10) for one in new),
    ]


def gone(pods: list[PodView], *names: str) -> list[PodView]:
    """The same, but these have left, except for the last step."""
    left = drained("x")
    steps = {
        field: getattr(left, field)
        for field in ("draining_since", "handed_off", "gate", "standing", "deletion_cost")
    }
    return [replace(one, **steps) if one.name in names else one for one in pods]


PENDING = starting("new", standing=Standing.UNASSIGNED)
WARMING = mark(MarkKind.WARM, "new")


def test_the_surge_of_a_rollout_is_no_pod_too_many() -> None:
    assert leaves(actions(rolling(2, PENDING), target=2, replicas=2)) == []
    assert actions(rolling(2, PENDING), target=3, replicas=2)[0] == SetReplicas(3)


def test_while_a_rollout_runs_those_that_it_replaces_leave_and_of_them_the_least_worth() -> None:
    worths = {"a": 2.0, "b": 1.0, "c": 3.0}
    found = actions(rolling(3, PENDING), target=2, replicas=3, worths=worths)
    assert leaves(found) == ["b"]
    serving = rolling(1, pod("new"), pod("newer"))
    assert leaves(actions(serving, target=1, replicas=2, worths={"a": 9.0})) == ["a"]


def test_replicas_goes_down_one_by_one_though_a_rollout_cannot_end() -> None:
    pods = gone(rolling(4, PENDING), "a", "b")
    marks = [*drain_marks("a", "b"), WARMING]
    assert actions(pods, marks, target=2, replicas=4) == [SetReplicas(3)]
    assert actions(pods, marks, target=2, replicas=3) == []  # one of the two is not deleted yet
    assert actions(pods[1:], marks, target=2, replicas=3) == [SetReplicas(2)]


def test_the_last_old_replica_goes_though_a_rollout_cannot_end() -> None:
    pods = gone(rolling(1, PENDING), "a")
    assert actions(pods, drain_marks("a"), target=0, replicas=1)[-1:] == [SetReplicas(0)]


def test_replicas_stays_while_kubernetes_would_take_a_new_replica_that_works() -> None:
    """It shrinks the largest ReplicaSet; among equals the oldest, which after a rollback may be the
    new one."""
    serving = [pod("new"), pod("newer")]
    marks = drain_marks("a")
    assert actions(gone(rolling(1, *serving), "a"), marks, target=1, replicas=2) == []
    assert actions(gone(rolling(2, *serving), "a"), marks, target=2, replicas=3) == []
    larger = gone(rolling(3, *serving), "a")
    assert actions(larger, marks, target=3, replicas=4) == [SetReplicas(3)]
    stuck = gone(rolling(1, serving[0], PENDING), "a")
    assert actions(stuck, marks, target=1, replicas=2)[-1:] == [SetReplicas(1)]


def test_after_a_rollback_the_younger_pods_are_those_that_are_replaced() -> None:
    pods = [pod("a"), replace(pod("b"), revision="2", created=NOW - 5, outdated=True)]
    assert leaves(actions([*pods, pod("c")], target=1, replicas=2)) == ["b"]


def test_without_a_word_about_templates_the_last_to_begin_is_new() -> None:
    pods = [replace(one, outdated=False) for one in rolling(2, PENDING)]
    assert leaves(actions(pods, target=1, replicas=2)) == ["a"]


def test_worths_matter_where_somebody_new_is_to_be_chosen() -> None:
    pods = [pod("a"), drained("b"), pod("c")]
    assert is_open(pods, 1, 3)
    assert not is_open(pods, 2, 3)
    assert not is_open(rolling(3, PENDING), 3, 3)
    assert is_open(rolling(3, PENDING), 2, 3)
