"""`fcfs`: by arrival."""

from pando_worker.scheduler.planning.matches import Matches
from pando_worker.scheduler.planning.policies.order import Clock, Order, SortedOrder


def fcfs(matches: Matches, clock: Clock) -> Order:
    return SortedOrder()
