"""Measures a running worker from outside, and fits a cost model to what its clients see.

Read in this order:
    calibrate.py     from a URL to a cost model
    design.py        what the worker is asked
    client.py        asks it, with the times of its tokens
    worker.py        what it says of itself
    observations.py  what was observed, as sums of steps
    fitting.py       from observations to a model
    errors.py        what can keep a worker from being measured
"""
