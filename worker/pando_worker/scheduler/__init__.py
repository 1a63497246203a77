"""Continuous batching: chooses the requests of each step, their pages, and handles the results.

Read in this order:
    scheduler.py  one step at a time
    req.py        one request, as data
    open_requests.py  all that are not answered yet
    arrivals.py   makes it of a command, unless it can never run here
    departures.py  ends it: its answer, and what it held
    planning/     which requests the next step runs
    pages/        the KV pages of each request
    sources.py    what encoders read for requests
    images.py     which images the vision tower encodes
    adapters/     which LoRA adapters are in device memory
    batches/      turns requests into arrays, and arrays into results
    compiling.py  requests whose grammars are being compiled
    stride.py     takes many steps at once, for the simulator
    meter.py      counters and rates, for heartbeats and metrics
    assembly.py   builds a scheduler around a loaded model

Imports memory and grammar, but not torch; it knows the model only through `batch` and `pools`.
"""
