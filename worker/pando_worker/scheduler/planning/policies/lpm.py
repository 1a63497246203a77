"""`lpm`: the longest cached prefix first, so that a prefix is used before it is evicted."""

from pando_worker.scheduler.planning.matches import Matches
from pando_worker.scheduler.planning.policies.order import Clock, Order, SortedOrder


def lpm(matches: Matches, clock: Clock) -> Order:
    return SortedOrder(lambda req: -matches.hit(req))
