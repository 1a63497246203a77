"""Small steps of the loop: a pool's size, and how long a replica took to start."""

from typing import Any

from pando_fleet.records.queues import Queued
from pando_operator.controller.loop_steps import decided, follow_replaced, follow_starts, staying
from pando_operator.controller.memory import Memory
from pando_operator.controller.observing.reading import Reading
from pando_operator.lifecycle.census import Census
from pando_operator.lifecycle.pods import PodView, Standing
from pando_operator.resource.policy import ScalingPolicy, Target
from pando_operator.scaling import History, Signals
from tests.operator.scaling.pool_model import CAPACITY, load

NOW = 1_700_000_000.0


def pod(name: str, **fields: Any) -> PodView:
    defaults: dict[str, Any] = {
        "uid": name,
        "created": NOW - 1000,
        "standing": Standing.READY,
        "containers_ready": True,
        "gate": True,
    }
    return PodView(name=name, **{**defaults, **fields})


def memory(**fields: Any) -> Memory:
    return Memory(**{"history": History(), "decisions": (), "starts": (), "shadows": {}, **fields})


def drained(name: str, **fields: Any) -> PodView:
    return pod(name, draining_since=NOW - 10, **fields)


def test_those_that_leave_count_no_more_and_a_surge_never_did() -> None:
    assert staying([pod("a"), pod("b"), drained("c")], 3) == 2
    assert staying([pod("a"), pod("b"), drained("c")], 2) == 2  # c is about to be deleted
    rolling = [pod("a"), pod("b"), drained("c"), pod("new", revision="2")]
    assert staying(rolling, 3) == 2
    assert staying(rolling, 2) == 2
    assert staying([pod("a")], 3) == 3  # two do not exist yet


def test_a_pod_that_went_otherwise_and_was_replaced_uses_up_no_rate() -> None:
    """Four should become three, but a rollout deleted the draining one, so there are four again."""
    history = History().scaled(NOW - 10, 4, 3, "pressure")
    known = memory(history=history, desired=3, replicas=4)
    follow_replaced(known, current=4, replicas=4, now=NOW)
    assert known.desired == 4
    assert sum(event.change for event in known.history.events) == 0
    follow_replaced(known, current=4, replicas=4, now=NOW + 1)
    assert len(known.history.events) == 2


def test_a_size_that_somebody_else_has_set_is_not_taken_for_that() -> None:
    known = memory(desired=3, replicas=3)
    follow_replaced(known, current=6, replicas=6, now=NOW)
    assert (known.desired, known.history.events) == (3, ())


def test_pods_of_a_rollout_have_no_earlier_decision_that_they_were_made_for() -> None:
    history = History().scaled(NOW - 300, 2, 3, "pressure")
    known = memory(history=history, starting={"grown", "rolled"})
    pods = [
        pod("old"),
        pod("grown", created=NOW - 298, revision="1"),
        pod("rolled", created=NOW - 40, revision="2"),
    ]
    assert follow_starts(known, pods, NOW) == [300.0, 40.0]


def test_a_start_that_an_image_held_up_teaches_nothing() -> None:
    known = memory(starts=(40.0,))
    loading: dict[str, Any] = {"containers_ready": False, "gate": False}
    held_up, other = pod("a", troubled=True, **loading), pod("b", **loading)
    assert follow_starts(known, [held_up, other], NOW - 60) == []
    assert follow_starts(known, [pod("a", **loading), other], NOW - 30) == []  # it is pulled now
    assert follow_starts(known, [pod("a"), pod("b")], NOW) == [1000.0]
    assert known.starts == (40.0, 1000.0)
    assert known.troubled <= {"a"}
    follow_starts(known, [], NOW)
    assert known.troubled == set()


def test_pods_that_a_quota_keeps_from_existing_are_late_after_a_while() -> None:
    counts = Census(replicas=1, ready=1, starting=0, stalled=0, draining=0)
    waits = Queued(5, waited_ms=9_000, tokens=100)
    reading = Reading((), {"r": 0}, frozenset(), {"r"}, Signals((load("r"),), waits))
    policy = ScalingPolicy(max_replicas=9, target=Target(queue_wait_seconds=1.0))
    history = History(capacity_tokens=CAPACITY).scaled(NOW, 1, 2, "pressure")
    soon = decided(policy, history, 2, counts, reading, (30.0,), NOW + 60)
    assert "1 replicas are coming" in soon.reason
    later = decided(policy, history, 2, counts, reading, (30.0,), NOW + 130)
    assert later.desired == 4
