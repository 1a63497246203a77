"""Small steps of the loop: a pool's size, and how long a replica took to start."""

from typing import Any

from pando_operator.controller.loop_steps import follow_replaced, follow_starts, staying
from pando_operator.controller.memory import Memory
from pando_operator.lifecycle.pods import PodView, Standing
from pando_operator.scaling import History

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
