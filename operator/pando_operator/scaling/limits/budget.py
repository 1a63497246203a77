"""The budget: replica-hours in a sliding period.

It always pays for `minReplicas`. The period has `PARTS` parts, and the remaining budget allows as
many more replicas as it can pay for one part. So a pool shrinks towards `minReplicas` as its budget
runs out, and grows again as old spending leaves the period.
"""

from dataclasses import replace
from math import floor

from pando_operator.resource.policy import Budget
from pando_operator.scaling.history.history import USAGE_KEPT, History, Usage

PARTS = 48


def spent(history: History, budget: Budget | None, replicas: int, now_s: float) -> History:
    """The history with the cost of `replicas`, including leaving ones, since the last call."""
    if budget is None:
        return replace(history, usage=(), seen_s=None)
    passed_s = now_s - history.seen_s if history.seen_s is not None else 0.0
    part_s = _part_s(budget)
    since_s = floor(now_s / part_s) * part_s
    kept = [each for each in history.usage if each.since_s > now_s - 2 * budget.period_hours * 3600]
    cost = max(0.0, passed_s) * replicas
    if kept and kept[-1].since_s >= since_s:
        kept[-1] = Usage(kept[-1].since_s, kept[-1].replica_s + cost)
    else:
        kept.append(Usage(since_s, cost))
    return replace(history, usage=tuple(kept)[-USAGE_KEPT:], seen_s=now_s)


def allowed(history: History, budget: Budget, fewest: int, now_s: float) -> tuple[int, str]:
    """The most replicas that the budget pays for now, and the reason in words."""
    part_s, most = _part_s(budget), _most(history, budget, fewest, now_s)
    used_h = sum(each.replica_s for each in _in_period(history, budget, now_s)) / 3600
    words = (
        f"{used_h:.1f} of {budget.replica_hours:g} replica-hours used in {budget.period_hours:g} h"
    )
    if most > fewest:
        return most, words
    for parts in range(1, PARTS + 2):
        if _most(history, budget, fewest, now_s + parts * part_s) > most:
            return most, f"{words}, more in {parts * part_s / 3600:.1f} h"
    return most, f"{words}, never enough for more than the fewest"


def _most(history: History, budget: Budget, fewest: int, now_s: float) -> int:
    period_s, part_s = budget.period_hours * 3600, _part_s(budget)
    left_s = budget.replica_hours * 3600 - fewest * period_s
    for each in _in_period(history, budget, now_s):
        left_s -= max(0.0, each.replica_s - fewest * min(part_s, now_s - each.since_s))
    return fewest + max(0, floor(left_s / part_s))


def _in_period(history: History, budget: Budget, now_s: float) -> list[Usage]:
    """The parts of the period; one that is only partly inside counts in full."""
    since_s = now_s - budget.period_hours * 3600 - _part_s(budget)
    return [each for each in history.usage if each.since_s > since_s]


def _part_s(budget: Budget) -> float:
    return budget.period_hours * 3600 / PARTS
