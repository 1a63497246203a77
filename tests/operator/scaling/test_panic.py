"""Panic mode: a short window for growth, and no shrinking until the surge is over."""

from pando_fleet.records.queues import Queued
from pando_operator.resource.policy import Behavior, Panic, ScaleUp, ScalingPolicy, Target
from pando_operator.scaling import Decision, History, decide
from pando_operator.scaling.proposals.panic import PANIC
from pando_operator.scaling.proposals.pressure import PRESSURE
from pando_operator.scaling.proposals.waits import QUEUE_WAIT
from tests.operator.scaling.pool_model import AT_ONCE, CAPACITY, NOW, changed, pool

CALM = ScalingPolicy(max_replicas=20, window_seconds=60)
POLICY = changed(CALM, panic=Panic(window_seconds=6, threshold=2.0))


def _run(policy: ScalingPolicy, *demand: float, size: int = 2, every_s: float = 2.0) -> Decision:
    """`demand` is in units of a replica's capacity, one per look; the size never changes."""
    history = History(capacity_tokens=CAPACITY)
    for i, tokens in enumerate(demand):
        snapshot = pool(*[tokens / size] * size, history=history)
        decision = decide(snapshot, policy, NOW + every_s * i)
        history = decision.history
    return decision


def test_a_surge_counts_after_the_panic_window_not_after_the_stable_one() -> None:
    surge = [0.5] * 30 + [6.0] * 4
    assert _run(CALM, *surge).wanted == 2
    panicking = _run(POLICY, *surge)
    assert (panicking.by, panicking.wanted) == (PANIC, 9)
    assert panicking.reason.startswith(
        "panic: demand of 6 s wants 9, 4.5 times the ready replicas; nothing shrinks: wants 9"
    )


def test_nothing_shrinks_until_the_stable_window_after_the_surge() -> None:
    policy = changed(POLICY, behavior=AT_ONCE)
    surge = [6.0] * 5
    within = _run(policy, *surge, *[0.1] * 30)  # 60 s
    assert (within.by, within.desired) == (PANIC, 6), "9 wanted, 4 more at once"
    after = _run(policy, *surge, *[0.1] * 70)
    assert after.by == PRESSURE
    assert after.desired == 1


def test_growth_in_panic_waits_for_no_stabilization_window() -> None:
    slow = Behavior(scale_up=ScaleUp(stabilization_window_seconds=300))
    surge = [0.5] * 30 + [6.0] * 4
    assert _run(changed(POLICY, behavior=slow), *surge).desired == 6
    assert _run(changed(CALM, window_seconds=1, behavior=slow), *surge).desired == 2


def test_demand_that_the_ready_replicas_can_carry_is_no_panic() -> None:
    assert _run(POLICY, *[1.9] * 10).by == PRESSURE


def test_panic_keeps_the_most_that_anything_wanted_meanwhile() -> None:
    policy = changed(
        POLICY,
        panic=Panic(window_seconds=6, threshold=1.2),
        target=Target(queue_wait_seconds=1.0),
    )
    demand = [0.9] * 6
    wait = Queued(requests=1, waited_ms=4_000, tokens=0)
    first = decide(pool(*demand, queued=wait), policy, NOW)
    assert {one.by: one.replicas for one in first.proposals} == {
        PANIC: 8,
        PRESSURE: 8,
        QUEUE_WAIT: 12,
    }
    second = decide(pool(*demand, history=first.history), policy, NOW + 2)
    assert (second.by, second.wanted) == (PANIC, 12)
