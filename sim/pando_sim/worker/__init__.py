"""A replica in virtual time: the worker's own scheduler, caches and meters around a cost model.

Read in this order:
    replica.py  the worker
    model.py    a model runner that computes nothing and takes time all the same
    stay.py     a request's stay there, as its router follows it
    stride.py   many steps at once, with the time of each

Imports the worker's scheduler and memory, and the cost model.
"""
