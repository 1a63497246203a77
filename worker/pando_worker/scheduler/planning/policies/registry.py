"""The policies by their names, as the setting `schedule_policy` has them."""

from collections.abc import Callable

from pando_worker.scheduler.planning.matches import Matches
from pando_worker.scheduler.planning.policies.dfs_weight import dfs_weight
from pando_worker.scheduler.planning.policies.fcfs import fcfs
from pando_worker.scheduler.planning.policies.hrrn import hrrn
from pando_worker.scheduler.planning.policies.lpm import lpm
from pando_worker.scheduler.planning.policies.order import Clock, Order
from pando_worker.scheduler.planning.policies.priority import priority
from pando_worker.scheduler.planning.policies.random_order import random_order

POLICIES: dict[str, Callable[[Matches, Clock], Order]] = {
    "lpm": lpm,
    "hrrn": hrrn,
    "dfs-weight": dfs_weight,
    "fcfs": fcfs,
    "priority": priority,
    "random": random_order,
}
