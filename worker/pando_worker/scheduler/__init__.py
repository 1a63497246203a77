"""Continuous batching: which requests run next, on which pages, and what became of it.

Read in this order:
    scheduler.py  one step at a time
    req.py        one request, as data
    planning/     which requests the next step runs
    pages/        the KV pages of each request
    batches/      requests to arrays, and results back
    stride.py     many steps at once, for the simulator
    meter.py      what is counted, for heartbeats and metrics
    assembly.py   puts a scheduler together around a loaded model

Imports memory and grammar, and no torch; knows the model by `batch` and `pools` alone.
"""
