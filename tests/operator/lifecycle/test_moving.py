"""The only replica of a pool leaves a cordoned node after its successor serves."""

import pytest

from pando_operator.lifecycle.actions import SetReplicas
from pando_operator.lifecycle.moving import size_to_plan, spare
from pando_operator.lifecycle.pods import PodView, pod_view
from tests.operator.lifecycle.planned import (
    NOW,
    actions,
    drain_marks,
    drained,
    leaves,
    pod,
    starting,
)


def test_it_stays_until_another_serves_and_then_leaves_as_any_other() -> None:
    here = pod("here", cordoned=True)
    assert size_to_plan([here], 1) == 2
    assert actions([here], target=2, replicas=1) == [SetReplicas(2)]
    waits = [here, starting("there")]
    assert size_to_plan(waits, 1) == 2
    assert leaves(actions(waits, target=2)) == []
    both = [here, pod("there", created=NOW - 1)]
    assert size_to_plan(both, 1) == 1
    # It leaves although it is older and its cache is worth more.
    assert leaves(actions(both, target=1, worths={"here": 9.0})) == ["here"]
    gone = drained("here", cordoned=True)
    assert size_to_plan([gone, pod("there")], 1) == 1
    found = actions([gone, pod("there")], drain_marks("here"), target=1, replicas=2)
    assert found == [SetReplicas(1)]


def test_a_successor_on_a_cordoned_node_is_none() -> None:
    assert size_to_plan([pod("a", cordoned=True), pod("b", cordoned=True)], 1) == 2


@pytest.mark.parametrize(
    ("pods", "desired"),
    [
        ([pod("a"), pod("b", cordoned=True)], 2),  # the budget lets it be evicted
        ([pod("a", cordoned=True), pod("b", cordoned=True)], 2),  # one after the other
        ([pod("a")], 1),
        ([pod("a", cordoned=True)], 0),
        ([], 1),
        ([pod("a", cordoned=True, deleting=True)], 1),  # Kubernetes has made another
    ],
)
def test_other_pools_get_no_replica_more(pods: list[PodView], desired: int) -> None:
    assert size_to_plan(pods, desired) == desired


def test_the_successor_is_not_taken_for_growth() -> None:
    here = pod("here", cordoned=True)
    assert spare([here, starting("there")], 2, 1) == 1
    assert spare([here, pod("there")], 2, 1) == 1
    assert spare([here], 1, 1) == 0
    assert spare([here, pod("there")], 2, 2) == 0  # the load wants both
    assert spare([drained("here", cordoned=True), pod("there")], 2, 1) == 0  # it counts as leaving


def test_a_pods_node_is_read_by_the_caller() -> None:
    item = {"metadata": {"name": "a"}, "spec": {"nodeName": "n"}}
    assert pod_view(item, None, cordoned=True).cordoned
    assert not pod_view(item, None).cordoned
