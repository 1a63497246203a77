"""Replica-hours in a sliding period.

Spending is counted in parts of the period, `PARTS` of them. What is left of the budget allows as
many replicas above the fewest as it pays for one part of the period; so the pool shrinks towards
`minReplicas` while the budget runs out, and grows again as old spending leaves the period.
"""

from dataclasses import replace
from math import floor

from pando_operator.scaling.history import USAGE_KEPT, History, Usage
from pando_operator.scaling.policy import Budget

PARTS = 48


def spent(history: History, budget: Budget | None, replicas: int, now_s: float) -> History:
    """The history with what `replicas`, leaving ones too, cost since the last look."""
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
    """Most replicas that the budget pays for now, and why in words."""
    part_s, most = _part_s(budget), _most(history, budget, fewest, now_s, 0.0)
    used_h = _used_s(history, budget, now_s) / 3600
    words = (
        f"{used_h:.1f} of {budget.replica_hours:g} replica-hours used in {budget.period_hours:g} h"
    )
    for parts in range(1, PARTS + 1):
        # From now on the pool is as large as it may be.
        later_s = now_s + parts * part_s
        if _most(history, budget, fewest, later_s, most * parts * part_s) > most:
            return most, f"{words}, more in {parts * part_s / 3600:.1f} h"
    return most, f"{words}, no more within a period"


def _most(history: History, budget: Budget, fewest: int, now_s: float, more_s: float) -> int:
    left_s = budget.replica_hours * 3600 - _used_s(history, budget, now_s) - more_s
    return fewest + max(0, floor(left_s / _part_s(budget)))


def _used_s(history: History, budget: Budget, now_s: float) -> float:
    """Parts count in full as long as any of their time is in the period."""
    since_s = now_s - budget.period_hours * 3600 - _part_s(budget)
    return sum(each.replica_s for each in history.usage if each.since_s > since_s)


def _part_s(budget: Budget) -> float:
    return budget.period_hours * 3600 / PARTS
