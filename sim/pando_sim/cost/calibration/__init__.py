"""Measures a running worker from outside, and fits a cost model to what its clients observe.

Read in this order:
    calibrate.py     from a URL to a cost model
    design.py        the measurements
    client.py        sends requests, and records the times of their tokens
    worker.py        reads what the worker reports about itself
    observations.py  observed times, as sums of steps
    fitting.py       from observations to a model
    errors.py        why a worker cannot be measured
"""
