"""Measures the worker's scheduler.

    scheduler_loop.py     what the scheduler itself costs in each step
    schedule_policies.py  the orders of waiting requests, on the same arrivals
    mixed_batches.py      what a long prompt does to running streams

Imports the worker, and loads of `simulator.placement_cells`.
"""
