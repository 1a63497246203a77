"""Replica-hours in a sliding period, compared with a record of every second."""

from dataclasses import replace

from pando_operator.resource.policy import Budget, ScalingPolicy
from pando_operator.scaling import History, decide
from pando_operator.scaling.decision import Limit
from pando_operator.scaling.limits.budget import allowed
from tests.operator.scaling.pool_model import NOW, pool

BUDGET = Budget(replica_hours=40.0, period_hours=10.0)
POLICY = ScalingPolicy(min_replicas=1, max_replicas=20, budget=BUDGET)
STEP_S = 120.0


def _run(hours: float, pressure: float = 2.0) -> tuple[list[int], History]:
    """Sizes at each step of a pool that always wants more; each change takes effect at once."""
    sizes, history, size, now = [], History(), 1, NOW
    for _ in range(int(hours * 3600 / STEP_S)):
        decision = decide(pool(*[pressure] * size, history=history), POLICY, now)
        history = decision.history
        if decision.desired != size:
            history = history.scaled(now, size, decision.desired, decision.by)
            size = decision.desired
        sizes.append(size)
        now += STEP_S
    return sizes, history


def test_no_period_costs_more_than_its_budget() -> None:
    sizes, _ = _run(50)
    each_h = STEP_S / 3600
    steps = int(BUDGET.period_hours / each_h)
    worst = max(sum(sizes[i : i + steps]) * each_h for i in range(len(sizes) - steps))
    assert worst <= BUDGET.replica_hours + 0.5
    assert worst >= 0.97 * BUDGET.replica_hours, "and nearly all of it is used"


def test_a_spent_budget_holds_at_the_fewest_and_says_when_it_frees() -> None:
    sizes, history = _run(6)
    assert sizes[-1] == 1
    decision = decide(pool(2.0, history=history), POLICY, NOW + 6 * 3600)
    assert (decision.desired, decision.limited_by) == (1, Limit.BUDGET)
    assert "the budget allows 1: " in decision.reason
    assert "of 40 replica-hours used in 10 h, more in " in decision.reason
    hours = float(decision.reason.rpartition("more in ")[2].removesuffix(" h"))
    later = NOW + (6 + hours) * 3600
    assert allowed(history, BUDGET, 1, later)[0] > 1


def test_replicas_that_leave_are_paid_for_too() -> None:
    history = decide(pool(0.5), POLICY, NOW).history
    one = decide(pool(0.5, history=history), POLICY, NOW + 60).history
    snapshot = replace(pool(0.5, history=history), draining=2)
    three = decide(snapshot, POLICY, NOW + 60).history
    assert (one.usage[-1].replica_s, three.usage[-1].replica_s) == (60.0, 180.0)
