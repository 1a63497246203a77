"""A GPU in ten minutes: whether the engine is right on it, and how fast.

    __main__.py  everything, or the table of attention's kernels
    stages.py    programs one after another, whatever fails, and the page about them
    speed.py     decodes and prefills of a model against the device's limits
    engine.py    the engine with a stopwatch
    shapes.py    models by their shapes
    ceilings.py  what the device can do
    parts.py     the measurements
    rival.py     transformers' continuous batching
    report.py    their results
    tune.py      times both kernels of attention

Imports the worker.
"""
