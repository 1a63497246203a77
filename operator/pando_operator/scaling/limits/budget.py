"""Replica-hours in a sliding period.

The fewest replicas are paid for in any case. What the budget has beside them is spent in parts of
the period, `PARTS` of them: what is left allows as many more replicas as it pays for one part. So a
pool shrinks towards `minReplicas` while its budget runs out, and grows again as old spending leaves
the period.
"""

from dataclasses import replace
from math import floor

from pando_operator.resource.policy import Budget
from pando_operator.scaling.history.history import USAGE_KEPT, History, Usage

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
    return most, f"{words}, never more than the fewest"


def _most(history: History, budget: Budget, fewest: int, now_s: float) -> int:
    period_s, part_s = budget.period_hours * 3600, _part_s(budget)
    left_s = budget.replica_hours * 3600 - fewest * period_s
    for each in _in_period(history, budget, now_s):
        left_s -= max(0.0, each.replica_s - fewest * min(part_s, now_s - each.since_s))
    return fewest + max(0, floor(left_s / part_s))


def _in_period(history: History, budget: Budget, now_s: float) -> list[Usage]:
    """Parts count in full as long as any of their time is in the period."""
    since_s = now_s - budget.period_hours * 3600 - _part_s(budget)
    return [each for each in history.usage if each.since_s > since_s]


def _part_s(budget: Budget) -> float:
    return budget.period_hours * 3600 / PARTS
