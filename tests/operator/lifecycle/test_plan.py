"""Single plans: which replica leaves, in which steps, and what delays a step."""

from dataclasses import replace

from pando_fleet.records.marks import MarkKind, MarkState
from pando_operator.lifecycle.actions import Annotate, ClearMark, SetGate, SetMark, SetReplicas
from pando_operator.lifecycle.departing import COST
from pando_operator.lifecycle.pods import DELETION_COST, DRAIN, HAND_OFF, Standing
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


def test_a_stalled_replica_leaves_first_and_hands_nothing_off() -> None:
    """Regardless of its cache's worth, and even while Kubernetes considers it ready; it waits only
    for requests that routers have not moved yet."""
    stalled = pod("stalled", stalled=True, requests=2)
    worths = {"stalled": 9.0, "b": 1.0}
    assert leaves(actions([pod("b"), stalled], target=1, worths=worths)) == ["stalled"]
    assert leaves(actions([pod("b", draining_since=NOW - 1), stalled], target=1)) == ["stalled"]
    leaving = replace(stalled, draining_since=NOW - 3)
    assert actions([pod("b"), leaving], drain_marks("stalled"), target=1) == []
    (closed,) = actions([pod("b"), replace(leaving, requests=0)], drain_marks("stalled"), target=1)
    assert isinstance(closed, SetGate)


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


def test_a_drain_begins_again_if_redis_has_forgotten_it() -> None:
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
    """One that is too busy to answer probes looks as unready as one that has left."""
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


def test_the_gate_waits_for_adapters_and_warming_does_not() -> None:
    late = pod("new", gate=False, lacks_adapters=True, ready_since=NOW - 61)
    warm = [mark(MarkKind.WARM, "new")]
    assert actions([pod("a"), late], warm, target=2) == [ClearMark(MarkKind.WARM, "new")]
    assert actions([pod("a"), late], target=2) == []
    (opened,) = actions([pod("a"), replace(late, lacks_adapters=False)], target=2)
    assert isinstance(opened, SetGate)
    # One that serves already goes on.
    assert actions([pod("a"), pod("b", lacks_adapters=True)], target=2) == []


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
