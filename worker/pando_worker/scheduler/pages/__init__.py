"""The KV pages of each request: taken, shared, moved, given back.

Read in this order:
    kv_manager.py  pages between their three owners
    prefixes.py    how much of a prompt is cached
    sliding.py     pages that sliding windows pin

The pool and the radix cache are in `pando_worker.memory`.
"""
