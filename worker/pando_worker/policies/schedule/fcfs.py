"""`fcfs`: by arrival."""

from pando_worker.policies.schedule.order import SchedulePolicy, SortedOrder

FCFS = SchedulePolicy(
    name="fcfs",
    help="the one that came first",
    make=lambda matches, clock: SortedOrder(),
)
