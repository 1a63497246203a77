"""`random`: an order that is the same in every run, so that decisions can be reproduced."""

import random

from pando_worker.policies.schedule.order import (
    Clock,
    MatchesView,
    Order,
    ReqT,
    SchedulePolicy,
    SortedOrder,
)


def _random_order(matches: MatchesView[ReqT], clock: Clock) -> Order[ReqT]:
    source = random.Random(0)
    return SortedOrder(lambda req: source.random())


RANDOM = SchedulePolicy(name="random", help="any, the same in every run", make=_random_order)
