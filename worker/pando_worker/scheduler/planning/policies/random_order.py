"""`random`: an order that is the same in every run, so that decisions can be reproduced."""

import random

from pando_worker.scheduler.planning.matches import Matches
from pando_worker.scheduler.planning.policies.order import Clock, Order, SortedOrder


def random_order(matches: Matches, clock: Clock) -> Order:
    source = random.Random(0)
    return SortedOrder(lambda req: source.random())
