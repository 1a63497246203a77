"""The order in which waiting requests are considered for admission, a module for each policy.

Read in this order:
    order.py     what a policy is, and the one that most of them share
    registry.py  the policies by their names

    fcfs.py          by arrival
    lpm.py           the longest cached prefix first
    hrrn.py          the highest response ratio first
    dfs_weight.py    the branch of the prefix tree with the most requests first
    priority.py      the highest priority first
    random_order.py  an order that is the same in every run

To add one, copy fcfs.py, list it in registry.py, and name it in `WorkerSettings.schedule_policy`.

An order is kept up as requests come, go, and find more or less of their prompt cached, so its cost
does not grow with the queue. `WaitingQueue` keeps every one of them from starving a request.
"""
