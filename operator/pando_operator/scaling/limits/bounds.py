"""The smallest and largest size of a pool now, by its own bounds, its schedules and its budget."""

from dataclasses import dataclass

from pando_operator.scaling.decision import Limit
from pando_operator.scaling.limits.budget import allowed
from pando_operator.scaling.limits.schedule import bounds_at
from pando_operator.scaling.proposals.sizing import View


@dataclass(frozen=True, slots=True)
class Bounds:
    fewest: int
    most: int
    why_fewest: str
    why_most: str
    most_is: Limit  # MAX_REPLICAS or BUDGET


def bounds_of(view: View, hour_s: float) -> Bounds:
    """`hour_s`: the Unix time by which schedules go."""
    policy = view.policy
    fewest, most, schedules = bounds_at(policy, hour_s)
    by_schedule = f" by schedule {schedules}" if schedules else ""
    why_most, most_is = f"maxReplicas is {most}{by_schedule}", Limit.MAX_REPLICAS
    if policy.budget is not None:
        paid, words = allowed(view.history, policy.budget, fewest, view.now_s)
        if paid < most:
            most, why_most, most_is = paid, f"the budget allows {paid}: {words}", Limit.BUDGET
    return Bounds(fewest, most, f"minReplicas is {fewest}{by_schedule}", why_most, most_is)
