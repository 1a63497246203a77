"""The order in which waiting requests are considered for admission, a module for each policy.

Read in this order:
    order.py            what a policy is, what it sees, and the order that most of them share
    fcfs.py             by arrival
    lpm.py              the longest cached prefix first
    hrrn.py             the highest response ratio first
    response_ratios.py  the order of hrrn.py
    dfs_weight.py       the branch of the prefix tree with the most requests first
    priority.py         the smallest priority first
    random_order.py     an order that is the same in every run

To add one, copy fcfs.py and list it here.

An order is kept up as requests come, go, and find more or less of their prompt cached, so its cost
does not grow with the queue. `WaitingQueue` (`scheduler/planning/waiting.py`) keeps every one of
them from starving a request.
"""

from pando_fleet.choices import by_name
from pando_worker.policies.schedule.dfs_weight import DFS_WEIGHT
from pando_worker.policies.schedule.fcfs import FCFS
from pando_worker.policies.schedule.hrrn import HRRN
from pando_worker.policies.schedule.lpm import LPM
from pando_worker.policies.schedule.priority import PRIORITY
from pando_worker.policies.schedule.random_order import RANDOM

SCHEDULE_POLICIES = by_name(LPM, HRRN, DFS_WEIGHT, FCFS, PRIORITY, RANDOM)
