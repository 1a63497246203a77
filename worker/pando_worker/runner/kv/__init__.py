"""The KV pool on the device and in host memory: how large, and the copies between.

Read in this order:
    kv_budget.py   how many tokens the pool can hold
    pool_plan.py   the same, before the weights are read
    host_pool.py   the host's part, and how many pages it has
    host_pages.py  copies between it and the device

Who owns which page is in `pando_worker.memory`.
"""
