"""The order in which waiting requests are considered for admission, a module for each policy.

Read in this order:
    order.py     what a policy is, and the one that most of them share
    registry.py  the policies by their names

    fcfs.py  lpm.py  dfs_weight.py  hrrn.py  priority.py  random_order.py

An order is kept up as requests come, go, and find more or less of their prompt cached, so its cost
does not grow with the queue. `WaitingQueue` keeps every one of them from starving a request.
"""
