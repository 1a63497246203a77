"""Single plans: who leaves, in which steps, and what holds a step back."""

from dataclasses import replace
from typing import Any

from pando_fleet.marks import Mark, MarkKind, MarkState
from pando_operator.lifecycle.actions import (
    Action,
    Annotate,
    ClearMark,
    SetGate,
    SetMark,
    SetReplicas,
)
from pando_operator.lifecycle.census import Census, census
from pando_operator.lifecycle.choice import is_open
from pando_operator.lifecycle.departing import COST
from pando_operator.lifecycle.plan import plan
from pando_operator.lifecycle.pods import (
    DELETION_COST,
    DRAIN,
    HAND_OFF,
    PodView,
    Standing,
    pod_view,
)
from pando_operator.lifecycle.world import LifecycleSettings

NOW = 1_700_000_000.0
SETTINGS = LifecycleSettings(
    drain_timeout_s=300.0, hand_off_tokens=500, warm_tokens=400, warm_timeout_s=60.0
)


def pod(name: str, **fields: Any) -> PodView:
    """One that serves."""
    defaults: dict[str, Any] = {
        "uid": f"uid-{name}",
        "created": NOW - 1000,
        "standing": Standing.READY,
        "containers_ready": True,
        "gate": True,
        "ready_since": NOW - 900,
        "requests": 0,
    }
    return PodView(name=name, **{**defaults, **fields})


def starting(name: str, **fields: Any) -> PodView:
    unready: dict[str, Any] = {
        "standing": Standing.UNREADY,
        "containers_ready": False,
        "gate": False,
        "ready_since": None,
        "requests": None,
    }
    return pod(name, **{**unready, **fields})


def drained(name: str, **fields: Any) -> PodView:
    """One that left, but for the last step."""
    left: dict[str, Any] = {
        "draining_since": NOW - 10,
        "handed_off": True,
        "gate": False,
        "standing": Standing.UNREADY,
        "deletion_cost": COST,
    }
    return pod(name, **{**left, **fields})


def mark(kind: MarkKind, name: str, **fields: Any) -> Mark:
    defaults: dict[str, Any] = {
        "budget_tokens": 0 if kind is MarkKind.DRAIN else 1,
        "left_ms": 100_000,
        "state": MarkState.OPEN,
        "router": "",
        "tokens": 0,
        "prefixes": 0,
        "reason": "",
    }
    return Mark(kind=kind, replica=name, **{**defaults, **fields})


def drain_marks(*names: str) -> list[Mark]:
    return [mark(MarkKind.DRAIN, name) for name in names]


def actions(
    pods: list[PodView],
    marks: list[Mark] | None = None,
    *,
    target: int,
    replicas: int | None = None,
    worths: dict[str, float] | None = None,
    without_redis: bool = False,
) -> list[Action]:
    return plan(
        pods,
        None if without_redis else marks or [],
        target=target,
        replicas=len(pods) if replicas is None else replicas,
        worths=worths or {},
        now=NOW,
        settings=SETTINGS,
    )


def leaves(found: list[Action]) -> list[str]:
    """Whose drain begins."""
    kinds = (entry for entry in found if isinstance(entry, SetMark))
    return [entry.replica for entry in kinds if entry.kind is MarkKind.DRAIN]


def test_the_replica_whose_cache_is_worth_least_leaves() -> None:
    pods = [pod("a"), pod("b"), pod("c")]
    assert leaves(actions(pods, target=2, worths={"a": 3.0, "b": 1.0, "c": 2.0})) == ["b"]


def test_of_equal_caches_the_youngest_leaves() -> None:
    pods = [pod("a"), pod("b", created=NOW - 5), pod("c")]
    assert leaves(actions(pods, target=2)) == ["b"]


def test_a_replica_that_cannot_serve_leaves_before_one_that_does() -> None:
    worths = {"crashed": 9.0}
    crashed = pod("crashed", containers_ready=False, standing=Standing.UNREADY)
    assert leaves(actions([pod("a"), crashed], target=1, worths=worths)) == ["crashed"]
    assert leaves(actions([pod("a"), starting("new")], target=1)) == ["new"]


def test_one_on_its_way_goes_on_though_another_is_worth_less_now() -> None:
    pods = [pod("a", draining_since=NOW - 1, handed_off=True, requests=2), pod("b")]
    assert actions(pods, drain_marks("a"), target=1, worths={"a": 5.0, "b": 0.0}) == []


def test_a_drain_whose_mark_alone_was_set_goes_on() -> None:
    pods = [pod("a"), pod("b")]
    found = actions(pods, drain_marks("a"), target=1, worths={"a": 5.0, "b": 0.0})
    assert leaves(found) == ["a"]
    assert [entry.pod for entry in found if isinstance(entry, Annotate)] == ["a"]
    assert not any(isinstance(entry, ClearMark) for entry in found)


def test_the_mark_comes_before_its_memory() -> None:
    first, second = actions([pod("a")], target=0)
    assert isinstance(first, SetMark)
    assert first.kind is MarkKind.DRAIN
    assert isinstance(second, Annotate)
    assert second.annotations[0][0] == DRAIN


def test_prefixes_are_handed_off_once_while_others_serve() -> None:
    leaving = pod("a", draining_since=NOW - 1)
    first, second = actions([leaving, pod("b")], drain_marks("a"), target=1)
    assert first == SetMark(MarkKind.HAND_OFF, "a", 60_000, 500)
    assert isinstance(second, Annotate)
    assert second.annotations[0][0] == HAND_OFF
    again = replace(leaving, handed_off=True, requests=1)
    assert actions([again, pod("b")], drain_marks("a"), target=1) == []
    alone = replace(leaving, requests=1)
    assert actions([alone], drain_marks("a"), target=0) == []


def test_nothing_goes_on_while_requests_run_or_nobody_knows() -> None:
    for requests in (1, None):
        busy = pod("a", draining_since=NOW - 100, handed_off=True, requests=requests)
        assert actions([busy, pod("b")], drain_marks("a"), target=1) == []


def test_a_word_that_may_be_older_than_the_mark_is_not_believed() -> None:
    idle = pod("a", draining_since=NOW - 1, handed_off=True)
    assert actions([idle, pod("b")], drain_marks("a"), target=1) == []


def test_a_hand_off_at_work_is_waited_for() -> None:
    idle = pod("a", draining_since=NOW - 10, handed_off=True)
    marks = [*drain_marks("a"), mark(MarkKind.HAND_OFF, "a", state=MarkState.CLAIMED)]
    assert actions([idle, pod("b")], marks, target=1) == []


def test_then_the_gate_closes_then_the_cost_is_set_then_replicas_is_lowered() -> None:
    marks, rest = drain_marks("a"), pod("b")
    idle = pod("a", draining_since=NOW - 10, handed_off=True)
    (closed,) = actions([idle, rest], marks, target=1)
    assert isinstance(closed, SetGate)
    assert not closed.is_open
    unseen = replace(idle, gate=False)
    assert actions([unseen, rest], marks, target=1) == []
    unready = replace(unseen, standing=Standing.UNREADY)
    cost = Annotate("a", "uid-a", ((DELETION_COST, str(COST)),))
    assert actions([unready, rest], marks, target=1) == [cost]
    ended = replace(unready, deletion_cost=COST)
    assert actions([ended, rest], marks, target=1) == [SetReplicas(1)]
    assert actions([ended, rest], marks, target=1, replicas=1) == []


def test_after_its_time_a_drain_goes_on_with_requests_left() -> None:
    late = pod("a", draining_since=NOW - 300, handed_off=True, requests=3)
    (closed,) = actions([late, pod("b")], drain_marks("a"), target=1)
    assert isinstance(closed, SetGate)


def test_a_drain_begins_anew_where_redis_has_forgotten_it() -> None:
    found = actions([drained("a", draining_since=NOW - 1000), pod("b")], target=1)
    assert leaves(found) == ["a"]
    assert not any(isinstance(entry, SetReplicas) for entry in found)


def test_a_mark_is_renewed_when_half_of_it_is_over() -> None:
    busy = pod("a", draining_since=NOW - 70, handed_off=True, requests=1)
    marks = [mark(MarkKind.DRAIN, "a", left_ms=59_000)]
    assert actions([busy, pod("b")], marks, target=1) == [SetMark(MarkKind.DRAIN, "a", 120_000, 0)]


def test_several_leave_at_once_each_when_it_has_ended() -> None:
    busy = pod("c", draining_since=NOW - 9, handed_off=True, requests=1)
    pods = [drained("a"), drained("b"), busy, pod("d")]
    assert actions(pods, drain_marks("a", "b", "c"), target=1) == [SetReplicas(2)]


def test_replicas_stays_while_kubernetes_could_choose_a_pod_that_works() -> None:
    """One that is too busy to answer probes looks as unready as one that left."""
    slow = pod("slow", draining_since=NOW - 5, standing=Standing.UNREADY, requests=4)
    pods = [drained("a"), replace(slow, handed_off=True, gate=False), pod("b")]
    assert actions(pods, drain_marks("a", "slow"), target=1) == []
    pods[1] = replace(pods[1], containers_ready=False)
    assert actions(pods, drain_marks("a", "slow"), target=1) == []


def test_needed_again_it_is_given_back_and_its_memory_goes_last() -> None:
    marks = [*drain_marks("a"), mark(MarkKind.HAND_OFF, "a")]
    found = actions([drained("a"), pod("b")], marks, target=2)
    assert found[:2] == [ClearMark(MarkKind.HAND_OFF, "a"), ClearMark(MarkKind.DRAIN, "a")]
    assert isinstance(found[2], SetGate)
    assert found[2].is_open
    forgotten = ((DRAIN, None), (HAND_OFF, None), (DELETION_COST, None))
    assert found[3:] == [Annotate("a", "uid-a", forgotten)]


def test_more_than_that_is_asked_of_the_deployment_at_once() -> None:
    found = actions([drained("a"), pod("b")], drain_marks("a"), target=5)
    assert found[0] == SetReplicas(5)
    assert ClearMark(MarkKind.DRAIN, "a") in found


def test_a_stray_drain_mark_is_taken_away() -> None:
    found = actions([pod("a"), pod("b")], drain_marks("a"), target=2)
    assert found == [ClearMark(MarkKind.DRAIN, "a")]


def test_a_new_replica_is_marked_before_it_is_ready_and_let_in_when_it_is_warm() -> None:
    new = starting("new")
    assert actions([pod("a"), new], target=2) == [SetMark(MarkKind.WARM, "new", 900_000, 400)]
    warming = mark(MarkKind.WARM, "new")
    assert actions([pod("a"), new], [warming], target=2) == []
    ready = replace(new, containers_ready=True, ready_since=NOW - 1, requests=0)
    assert actions([pod("a"), ready], [warming], target=2) == []
    warm = replace(warming, state=MarkState.DONE)
    (opened,) = actions([pod("a"), ready], [warm], target=2)
    assert isinstance(opened, SetGate)
    assert opened.is_open


def test_warming_has_an_end() -> None:
    ready = starting("new", containers_ready=True, ready_since=NOW - 60)
    cleared, opened = actions([pod("a"), ready], [mark(MarkKind.WARM, "new")], target=2)
    assert cleared == ClearMark(MarkKind.WARM, "new")
    assert isinstance(opened, SetGate)


def test_a_model_that_loads_longer_than_a_mark_lasts_is_marked_again() -> None:
    over = mark(MarkKind.WARM, "new", left_ms=-1)
    assert actions([pod("a"), starting("new")], [over], target=2) == [
        SetMark(MarkKind.WARM, "new", 900_000, 400)
    ]


def test_a_replica_that_leaves_is_no_longer_warmed() -> None:
    leaving = starting("new", draining_since=NOW - 1)
    marks = [*drain_marks("new"), mark(MarkKind.WARM, "new")]
    found = actions([pod("a"), leaving], marks, target=1)
    assert found == [ClearMark(MarkKind.WARM, "new")]


def test_nobody_is_warmed_while_requests_have_nobody_else_to_go_to() -> None:
    assert actions([starting("new")], target=1) == []
    found = actions([starting("new")], [mark(MarkKind.WARM, "new")], target=1)
    assert found == [ClearMark(MarkKind.WARM, "new")]


def test_a_deleted_pod_gets_no_new_request_and_its_prefixes_go_on() -> None:
    ending = pod("a", deleting=True, requests=5)
    assert actions([ending, pod("b")], target=1, replicas=1) == [
        SetMark(MarkKind.HAND_OFF, "a", 60_000, 500),
        SetMark(MarkKind.DRAIN, "a", 120_000, 0),
    ]
    marks = [*drain_marks("a"), mark(MarkKind.HAND_OFF, "a", state=MarkState.DONE)]
    assert actions([ending, pod("b")], marks, target=1, replicas=1) == []


def rolling(old: int, *new: PodView) -> list[PodView]:
    """Pods a, b, … of an old template that serve, and new ones."""
    names = "abcdefgh"[:old]
    return [
        *(pod(name, revision="1", outdated=True) for name in names),
        *(replace(one, revision="2", created=NOW - 10) for one in new),
    ]


def gone(pods: list[PodView], *names: str) -> list[PodView]:
    """The same where these have left, but for the last step."""
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
    assert actions(pods, marks, target=2, replicas=3) == []  # one of the two is not yet taken
    assert actions(pods[1:], marks, target=2, replicas=3) == [SetReplicas(2)]


def test_the_last_old_replica_goes_though_a_rollout_cannot_end() -> None:
    pods = gone(rolling(1, PENDING), "a")
    assert actions(pods, drain_marks("a"), target=0, replicas=1)[-1:] == [SetReplicas(0)]


def test_replicas_stays_while_kubernetes_would_take_a_new_replica_that_works() -> None:
    """It takes from the largest ReplicaSet; of equal ones from the oldest, which may be the new one
    after a rollback."""
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


def test_one_that_is_too_busy_to_answer_probes_is_not_the_first_to_leave() -> None:
    slow = pod("slow", containers_ready=False, standing=Standing.UNREADY, requests=7)
    assert leaves(actions([slow, pod("b")], target=1, worths={"slow": 2.0})) == ["b"]


def test_while_redis_is_away_nothing_leaves_and_new_replicas_join_late() -> None:
    late = starting("new", containers_ready=True, ready_since=NOW - 61)
    (opened,) = actions([pod("a"), drained("b"), late], target=1, without_redis=True)
    assert isinstance(opened, SetGate)
    assert opened.pod == "new"
    assert actions([pod("a")], target=2, without_redis=True) == [SetReplicas(2)]


def test_pods_that_were_not_made_yet_are_not_made() -> None:
    assert actions([pod("a"), pod("b")], target=2, replicas=5) == [SetReplicas(2)]


def test_a_census_counts_each_pod_once() -> None:
    pods = [pod("a"), starting("b"), drained("c"), pod("d", deleting=True)]
    assert census(pods) == Census(replicas=3, ready=1, starting=1, draining=2)


def test_a_pod_is_read_as_the_api_server_has_it() -> None:
    found = pod_view(
        {
            "metadata": {
                "name": "a",
                "uid": "u",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"pod-template-hash": "h"},
                "annotations": {
                    DRAIN: "2026-01-01T00:10:00.500+00:00",
                    DELETION_COST: str(COST),
                },
            },
            "spec": {"nodeName": "n"},
            "status": {
                "phase": "Running",
                "conditions": [
                    {"type": "Ready", "status": "False"},
                    {
                        "type": "ContainersReady",
                        "status": "True",
                        "lastTransitionTime": "2026-01-01T00:01:00Z",
                    },
                    {"type": "pando.dev/serving", "status": "True"},
                ],
            },
        },
        requests=3,
    )
    assert found == PodView(
        name="a",
        uid="u",
        created=1767225600.0,
        standing=Standing.UNREADY,
        containers_ready=True,
        gate=True,
        revision="h",
        ready_since=1767225660.0,
        draining_since=1767226200.5,
        deletion_cost=COST,
        requests=3,
    )
    assert not found.outdated
    bare = pod_view({"metadata": {"name": "b"}}, requests=None)
    assert bare.standing is Standing.UNASSIGNED
    assert not bare.is_serving


def test_a_pod_is_outdated_where_its_template_has_other_labels_or_annotations() -> None:
    item = {"metadata": {"name": "a", "labels": {"l": "1", "more": "x"}, "annotations": {"t": "1"}}}

    def outdated(labels: dict[str, str], annotations: dict[str, str]) -> bool:
        template = {"metadata": {"labels": labels, "annotations": annotations}}
        return pod_view(item, None, template).outdated

    assert not outdated({"l": "1"}, {"t": "1"})
    assert outdated({"l": "1"}, {"t": "2"})
    assert outdated({"l": "2"}, {"t": "1"})
    assert outdated({"l": "1"}, {"t": "1", "kubectl.kubernetes.io/restartedAt": "now"})
