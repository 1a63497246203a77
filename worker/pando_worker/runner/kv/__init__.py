"""The KV pool on the device and in host memory: their sizes, and copies between them.

Read in this order:
    kv_budget.py   how many tokens the pool can hold
    pool_plan.py   the same, before the weights are read
    host_pool.py   the host's pool and its number of pages
    host_pages.py  copies between the host and the device
    page_streams.py  the same on a GPU, while the model runs

`pando_worker.memory` knows the owner of each page.
"""
