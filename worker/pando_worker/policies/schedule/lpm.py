"""`lpm`: the longest cached prefix first, so that a prefix is used before it is evicted."""

from pando_worker.policies.schedule.order import SchedulePolicy, SortedOrder

LPM = SchedulePolicy(
    name="lpm",
    help="the one with the longest cached prefix",
    make=lambda matches, clock: SortedOrder(lambda req: -matches.hit(req)),
)
