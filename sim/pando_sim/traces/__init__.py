"""Request traces as streams: `for request in shaped(open_trace(path), Shape(speed=2)): …`.

Formats are recognized by a file's content, not by its name. Requests are read in the order of their
times, one after the other; only a trace's open conversations are held in memory.
"""

from pando_sim.traces.day import Day
from pando_sim.traces.errors import TraceError
from pando_sim.traces.rows import Reading
from pando_sim.traces.shape import Shape, shaped
from pando_sim.traces.tokenizer import TextTokenizer
from pando_sim.traces.trace import FORMATS, Trace, open_trace

__all__ = [
    "FORMATS",
    "Day",
    "Reading",
    "Shape",
    "TextTokenizer",
    "Trace",
    "TraceError",
    "open_trace",
    "shaped",
]
