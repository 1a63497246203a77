"""`priority`: the highest priority first."""

from pando_worker.scheduler.planning.matches import Matches
from pando_worker.scheduler.planning.policies.order import Clock, Order, SortedOrder


def priority(matches: Matches, clock: Clock) -> Order:
    return SortedOrder(lambda req: -req.priority)
