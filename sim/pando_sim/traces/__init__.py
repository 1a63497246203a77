"""Request traces as streams of requests: `for request in open_trace(path): …`.

Formats are told apart by what a file holds, not by its name. Requests come in the order of their
times and are made one after the other; nothing of a trace is held but its open conversations.
"""

from pando_sim.traces.errors import TraceError
from pando_sim.traces.rows import Reading
from pando_sim.traces.trace import FORMATS, Trace, open_trace

__all__ = ["FORMATS", "Reading", "Trace", "TraceError", "open_trace"]
