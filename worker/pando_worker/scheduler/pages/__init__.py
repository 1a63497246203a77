"""The KV pages of each request: allocated, shared, moved, freed.

Read in this order:
    kv_manager.py  moves pages between their three owners; retracts requests
    prefixes.py    how much of a prompt is cached and can be reused
    sliding.py     the pages that sliding windows pin
    sources.py     the pages of what encoders made

The pool and the radix cache are in `pando_worker.memory`.
"""
