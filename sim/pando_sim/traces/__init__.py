"""Request traces as streams: `for request in shaped(open_trace(path), Shape(speed=2)): …`.

Read in this order:
    trace.py       files as requests
    formats/       all formats
    rows.py        a line as a row, and rows as requests, whatever the format
    prompts.py     a prompt as tokens, bytes and keys
    images.py      images of prompts
    sounds.py      files of sound in front of prompts
    adapters.py    gives the requests of a trace adapters, a few of them popular
    lines.py, json_lines.py, tokenizer.py
    unplayed.py    counts the lines that cannot be played
    shape.py       changes a trace: speed, repetition, a part of it
    merging.py     recordings of several routers as one file
    distinct.py    counts their sessions
    lasting.py     the beginnings of prompts that repetitions share
    day.py         stretches a trace over a day, with quiet hours and bursts
    errors.py

Formats are recognized by a file's content, not by its name. Requests are read in the order of their
times, one after the other; only a trace's open conversations are held in memory.
"""

from pando_sim.traces.day import Day
from pando_sim.traces.errors import TraceError
from pando_sim.traces.rows import Reading
from pando_sim.traces.shape import Shape, shaped
from pando_sim.traces.trace import Trace, open_trace

__all__ = [
    "Day",
    "Reading",
    "Shape",
    "Trace",
    "TraceError",
    "open_trace",
    "shaped",
]
