"""`priority`: the smallest `priority` first, as in vLLM."""

from pando_worker.policies.schedule.order import SchedulePolicy, SortedOrder

PRIORITY = SchedulePolicy(
    name="priority",
    help="the one with the smallest `priority`",
    make=lambda matches, clock: SortedOrder(lambda req: req.priority),
    by_priority=True,
)
