"""A trace on disk: its format, one of `FORMATS`, and its requests."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from operator import attrgetter
from pathlib import Path

from pando_sim.request import Request
from pando_sim.session import Session
from pando_sim.traces.errors import TraceError
from pando_sim.traces.formats import FORMATS, RECORDING
from pando_sim.traces.formats.format import FirstLine, Format
from pando_sim.traces.lines import lines
from pando_sim.traces.rows import Reading, in_order, requests
from pando_sim.traces.unplayed import Unplayed

UNIX_FROM_S = 1e8
"""Of the year 1973. A trace whose times are smaller counts them from any moment."""

FILE_NUMBERS = 1 << 40
"""More than a file has lines, because prompts that share nothing have their own numbers."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Can be iterated repeatedly: the files are read again each time, and never held."""

    paths: tuple[Path, ...]
    format: Format
    reading: Reading
    unplayed: Unplayed

    def __iter__(self) -> Iterator[Request]:
        """Raises TraceError when it reaches an error, or if the trace has sessions."""
        if (rows_of := self.format.reader().rows) is None:
            what = "has sessions without times of their own; say how many run at once: --sessions"
            raise TraceError(self.paths[0], None, what)
        every = [
            in_order(path, rows_of(path, self.reading, first, self.unplayed))
            for first, path in zip(count(step=FILE_NUMBERS), self.paths, strict=False)
        ]
        rows = every[0] if len(every) == 1 else heapq.merge(*every, key=attrgetter("at_s"))
        return requests(rows, self.reading)

    def began_s(self) -> float | None:
        """The Unix time of the first request; None if the trace does not say which day it is of.

        Raises TraceError like `__iter__`.
        """
        if (rows_of := self.format.reader().rows) is None:
            return None
        uncounted = Unplayed(strict=False)
        firsts = [next(rows_of(path, self.reading, 0, uncounted), None) for path in self.paths]
        began_s = min((row.at_s for row in firsts if row is not None), default=0.0)
        return began_s if began_s >= UNIX_FROM_S else None

    def sessions(self, again: int = 0) -> Iterator[Session]:
        """Its sessions in turn; as new ones for each `again`.

        Raises TraceError when it reaches an error, or if the trace has no sessions.
        """
        if (sessions_of := self.format.reader().sessions) is None:
            what = f"is of format {self.format.name}, which has no sessions to keep running"
            raise TraceError(self.paths[0], None, what)
        for first, path in zip(count(step=FILE_NUMBERS), self.paths, strict=False):
            yield from sessions_of(path, self.reading, first, again, self.unplayed)

    def sessions_without_end(self) -> Iterator[Session]:
        """There must be one."""
        for again in count():
            yield from self.sessions(again)


def open_trace(paths: Path | Sequence[Path], reading: Reading | None = None) -> Trace:
    """Merges several files, such as the recordings of several routers, into one trace by time.

    Raises TraceError if a file cannot be read, or its format is unknown or differs from the first
    file's.
    """
    every = (paths,) if isinstance(paths, Path) else tuple(paths)
    first = _format_of(every[0])
    for path in every[1:]:
        if (other := _format_of(path)) is not first:
            raise TraceError(path, None, f"is of format {other.name}, {every[0]} of {first.name}")
    reading = reading or Reading()
    unplayed = Unplayed(reading.strict)
    if reading.model is not None and not first.names_models:
        raise TraceError(every[0], None, f"its format, {first.name}, does not name models")
    if first is RECORDING:  # one value for all, or their prompts would share no tokens
        from pando_sim.traces.formats.recording import bytes_per_token

        ratio = bytes_per_token(every[0], reading.model, unplayed)
        reading = replace(reading, bytes_per_token=ratio)
    return Trace(every, first, reading, unplayed)


def _format_of(path: Path) -> Format:
    """Recognizes the format by the first line."""
    line = next(lines(path), None)
    if line is None:
        raise TraceError(path, None, "contains no requests")
    first = FirstLine.of(line.text)
    for known in FORMATS.values():
        if known.begins(first):
            return known
    formats = "; ".join(f"{known.name} ({known.in_words})" for known in FORMATS.values())
    raise TraceError(path, line.number, f"has an unknown format; known are {formats}")
