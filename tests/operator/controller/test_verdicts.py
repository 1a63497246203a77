"""Conditions are right in each mode, and no longer than the API allows."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pando_operator.controller.reporting.status import is_due
from pando_operator.controller.verdicts import (
    adapters_ready,
    available,
    conditions,
    degraded,
    rollout,
    scaling_active,
    stalled,
    trouble,
)
from pando_operator.lifecycle.census import Census
from pando_operator.resource.adapters import AdapterStatus
from pando_operator.resource.policy import ScalingPolicy
from pando_operator.resource.scaling import Mode
from pando_operator.resource.status import MESSAGE_CHARS, WorkerPoolStatus
from pando_operator.scaling import Decision, decide
from tests.operator.scaling.pool_model import NOW, pool

NOBODY = Census(replicas=0, ready=0, starting=0, stalled=0, draining=0)


def decision(ready: int) -> Decision:
    return decide(pool(*[0.5] * ready, coming=1), ScalingPolicy(max_replicas=9), NOW)


def test_only_a_pool_that_a_request_wakes_is_available_without_replicas() -> None:
    asleep = available(Mode.AUTO, NOBODY, 0)
    assert (asleep.holds, asleep.reason) == (True, "ScaledToZero")
    assert "a request wakes the pool" in asleep.message
    for mode in (Mode.MANUAL, Mode.RECOMMEND):
        put_out = available(mode, NOBODY, 0)
        assert (put_out.holds, put_out.reason) == (False, "ScaledToZero")
        assert put_out.message.startswith("spec.replicas is 0")


def test_it_says_which_numbers_of_the_spec_count() -> None:
    auto = scaling_active(Mode.AUTO, decision(2), is_starting=False)
    assert auto.holds
    assert "spec.replicas follows" in auto.message
    for mode in (Mode.MANUAL, Mode.RECOMMEND):
        other = scaling_active(mode, decision(2), is_starting=False)
        assert not other.holds
        assert "minReplicas and maxReplicas apply in mode Auto" in other.message


@pytest.mark.parametrize("is_starting", [True, False])
def test_a_pool_that_starts_misses_no_signals(is_starting: bool) -> None:
    verdict = scaling_active(Mode.AUTO, decision(0), is_starting=is_starting)
    assert (verdict.holds, verdict.reason) == (
        (False, "NoReplicaReady") if is_starting else (False, "SignalsMissing")
    )


def test_a_stalled_replica_is_named_if_nothing_is_worse() -> None:
    verdict = degraded(None, (), ["a", "b"], ["c"], NOW)
    assert (verdict.holds, verdict.reason) == (True, "EngineStalled")
    assert verdict.message.startswith("pod a, pod b: its engine has stalled")
    container = {"name": "worker", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    item = {"metadata": {"name": "c"}, "status": {"containerStatuses": [container]}}
    assert degraded(None, (item,), ["a"], [], NOW).reason == "ImagePullBackOff"
    assert degraded(None, (), [], [], NOW).holds is False


def test_a_silent_replica_is_named() -> None:
    verdict = degraded(None, (), [], ["a", "b"], NOW)
    assert (verdict.holds, verdict.reason) == (True, "ReplicaSilent")
    assert verdict.message.startswith("pod a, pod b: it is ready and sends no heartbeats")


def test_a_refusal_of_any_length_fits() -> None:
    refusal = trouble("Forbidden", "x" * (MESSAGE_CHARS + 1))
    (condition,) = conditions((), (refusal,), 1, datetime.now(UTC))
    assert condition.message == "x" * MESSAGE_CHARS


def row(name: str = "a", ready: int = 2, **fields: Any) -> AdapterStatus:
    values: dict[str, Any] = {"source": "x", "replicas": 2, "state": f"Ready {ready}/2"}
    return AdapterStatus(name=name, ready=ready, **values | fields)


def test_adapters_are_ready_on_all_replicas_or_the_condition_names_those_that_are_not() -> None:
    assert adapters_ready([row(), row("b")]).reason == "AllAdaptersReady"
    late = adapters_ready([row(), row("b", 1), row("c", 0, removing=True)])
    assert (late.holds, late.reason) == (False, "InProgress")
    assert late.message.endswith("b, c")
    failing = row("c", 1, failing=True, state="Ready 1/2: w2: out of disk")
    verdict = adapters_ready([row(), row("b", 1), failing, failing])
    assert (verdict.holds, verdict.reason) == (False, "AdapterFailing")
    assert verdict.message == "c: Ready 1/2: w2: out of disk (and 1 more)"


def test_without_replicas_nobody_knows_and_without_adapters_all_are_ready() -> None:
    assert adapters_ready([row(ready=0, replicas=0)]).holds is None
    assert adapters_ready([]).holds is True


def test_a_status_is_written_at_once_for_an_adapters_numbers_and_later_for_its_words() -> None:
    before = WorkerPoolStatus(adapters=(row(ready=1),))
    assert is_due(before, WorkerPoolStatus(adapters=(row(ready=2),)), 0.0)
    words = WorkerPoolStatus(adapters=(row(ready=1, state="other words"),))
    assert not is_due(before, words, 10.0)
    assert is_due(before, words, 20.0)


def of(**counts: int) -> Census:
    return replace(NOBODY, **counts)


@pytest.mark.parametrize(
    ("counts", "desired", "is_paused", "is_ready", "reason", "is_moving"),
    [
        ({"replicas": 3, "updated": 3}, 3, False, True, "AllReplicasReady", False),
        # Three old ones serve, and the first new one loads.
        ({"replicas": 4, "ready": 3, "outdated": 3}, 3, False, False, "RollingOut", True),
        ({"replicas": 4, "updated": 3, "outdated": 1}, 3, False, False, "RollingOut", True),
        ({"replicas": 3, "ready": 3, "outdated": 3}, 3, True, False, "Paused", False),
        ({"replicas": 3, "updated": 3}, 3, True, True, "AllReplicasReady", False),
        ({"replicas": 2, "updated": 1}, 2, False, False, "SomeReplicasReady", True),
        ({"replicas": 1}, 1, False, False, "NoReplicaReady", True),
        ({"replicas": 2, "updated": 1, "draining": 1}, 1, False, True, "AllReplicasReady", True),
        ({}, 0, False, True, "ScaledToZero", False),
    ],
)
def test_a_change_can_be_awaited(
    counts: dict[str, int],
    desired: int,
    is_paused: bool,
    is_ready: bool,
    reason: str,
    is_moving: bool,
) -> None:
    ready, progressing = rollout(of(**counts), desired, is_paused=is_paused)
    assert (ready.holds, ready.reason, progressing.holds) == (is_ready, reason, is_moving)


def test_what_no_waiting_mends_is_stalled() -> None:
    assert stalled(trouble("InvalidSpec", "spec.x does not exist")).holds
    assert not stalled(trouble("Unschedulable", "no node")).holds
    assert not stalled(degraded(None, (), [], [], NOW)).holds
