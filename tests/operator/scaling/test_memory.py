"""The memory of a restarted operator, and how long replicas take to start."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pando_operator.resource.policy import Budget, Panic, ScalingPolicy
from pando_operator.scaling import (
    History,
    decide,
    decided_at,
    from_status,
    learned_start_s,
    to_status,
    with_start,
)
from tests.operator.scaling.pool_model import CAPACITY, NOW, FluidPool, changed, pool, settled

POLICY = ScalingPolicy(max_replicas=30, panic=Panic(), budget=Budget(replica_hours=900.0))


def _lived() -> FluidPool:
    return FluidPool(POLICY, lambda at_s: CAPACITY * (1 + (at_s // 300) % 5) / 20).run(2_000)


def test_a_restart_decides_as_before_but_for_averages() -> None:
    history = _lived().history
    recalled = from_status(json.loads(json.dumps(to_status(history))))
    bare = replace(history, samples=(), counters=())
    rounded = from_status(to_status(bare))
    assert recalled == rounded
    assert recalled.usable_share == pytest.approx(history.usable_share, abs=0.001)
    assert recalled.events == tuple(
        replace(event, at_s=round(event.at_s, 3)) for event in history.events
    )
    now = history.samples[-1].at_s + 5
    steady = pool(0.5, 0.5, history=recalled)
    assert (
        decide(steady, POLICY, now).desired
        == decide(replace(steady, history=bare), POLICY, now).desired
    )


def test_a_restart_counts_as_a_request() -> None:
    """Nobody observed the pool while no operator ran, and the status may be old."""
    sleepy = changed(POLICY, min_replicas=0, idle_seconds=120)
    history = _lived().history
    last_s = history.samples[-1].at_s
    assert history.last_busy_s == last_s
    recalled = from_status(json.loads(json.dumps(to_status(history))))
    later_s = last_s + 130.0
    quiet = pool(0.0, history=recalled)
    first = decide(quiet, sleepy, later_s)
    assert first.desired == 1
    for passed_s, desired in ((119.0, 1), (120.0, 0)):
        again = replace(quiet, history=first.history)
        assert decide(again, sleepy, later_s + passed_s).desired == desired


def test_what_is_kept_is_small() -> None:
    assert len(json.dumps(to_status(_lived().history))) < 2_000
    history = History()
    for i in range(1_000):
        history = history.recommended(NOW + i, i % 7).scaled(
            NOW + i, i % 7, (i + 3) % 7, "pressure"
        )
    assert len(json.dumps(to_status(history))) < 20_000


@pytest.mark.parametrize(
    "kept", [{"highs": [[1]]}, {"events": 3}, {"panicAt": "yesterday"}, {"usage": [[None, 1]]}]
)
def test_what_is_no_history_is_refused(kept: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="the history in the status has an unknown form"):
        from_status(kept)


@given(st.lists(st.floats(0.1, 600.0), max_size=40))
def test_the_learned_start_is_the_median_of_the_last_ones(seconds: list[float]) -> None:
    starts: tuple[float, ...] = ()
    for each in seconds:
        starts = with_start(starts, each)
    last = sorted(seconds[-16:])
    assert len(starts) == len(last)
    learned = learned_start_s(starts)
    if not last:
        assert learned is None
    else:
        assert learned == pytest.approx((last[(len(last) - 1) // 2] + last[len(last) // 2]) / 2)


def test_a_start_begins_with_the_decision_before_the_pod() -> None:
    history = History().scaled(NOW, 1, 2, "pressure").scaled(NOW + 100, 2, 5, "pressure")
    history = history.scaled(NOW + 150, 5, 4, "pressure")
    assert decided_at(history, NOW + 3) == NOW
    assert decided_at(history, NOW + 160) == NOW + 100
    assert decided_at(history, NOW - 50) == NOW - 50, "created for another reason"
    assert decided_at(history, NOW + 5_000) == NOW + 5_000


@pytest.mark.parametrize(("start_s", "kept_s"), [(None, 60.0), (20.0, 60.0), (600.0, 660.0)])
def test_samples_reach_back_over_the_window_and_a_whole_start(
    start_s: float | None, kept_s: float
) -> None:
    policy = changed(POLICY, window_seconds=60)
    samples = settled(pool(0.5, start_s=start_s), policy, seconds=1_500).history.samples
    assert samples[-1].at_s - samples[0].at_s == kept_s
