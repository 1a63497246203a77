"""A replica in virtual time: the worker's own scheduler, caches and meters around a cost model.

Read in this order:
    replica.py   the worker
    model.py     a model runner that computes nothing but takes time
    settings.py  the settings with which it runs
    adapters.py  LoRA adapters that only take time to load
    stay.py      a request's stay at a replica, followed by its router
    stride.py    many steps at once, with the time of each

Imports the worker's scheduler and memory, and the cost model.
"""
