"""A trace on disk: which format it has, and its requests."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from operator import attrgetter
from pathlib import Path

import msgspec

from pando_sim.request import Request
from pando_sim.traces import azure, mooncake, recording, text
from pando_sim.traces.errors import TraceError
from pando_sim.traces.lines import lines
from pando_sim.traces.rows import Reading, Row, in_order, requests
from pando_sim.traces.unplayed import Unplayed

FILE_NUMBERS = 1 << 40
"""More than a file has lines: prompts that share with nobody have numbers of their own."""


@dataclass(frozen=True, slots=True)
class Format:
    name: str
    what: str  # for people
    rows: Callable[[Path, Reading, int, Unplayed], Iterator[Row]]
    names_models: bool = False


MOONCAKE = Format(
    "mooncake",
    "Mooncake's JSON lines: timestamp, input_length, output_length, hash_ids",
    mooncake.rows,
)
TEXT = Format(
    "text",
    "JSON lines with text: timestamp; messages, prompt or input (or all of these in body);"
    " output_tokens or output; session_id",
    text.rows,
    names_models=True,
)
AZURE = Format("azure", f"Azure's CSV: {', '.join(azure.COLUMNS)}", azure.rows)
RECORDING = Format(
    "recording", "what `pando router --record` writes", recording.rows, names_models=True
)

FORMATS = (MOONCAKE, TEXT, AZURE, RECORDING)


@dataclass(frozen=True, slots=True)
class Trace:
    """Iterated as often as wanted: each time the files are read anew, and never held."""

    paths: tuple[Path, ...]
    format: Format
    reading: Reading
    unplayed: Unplayed

    def __iter__(self) -> Iterator[Request]:
        """Raises TraceError when it comes to what is wrong."""
        every = [
            in_order(path, self.format.rows(path, self.reading, first, self.unplayed))
            for first, path in zip(count(step=FILE_NUMBERS), self.paths, strict=False)
        ]
        rows = every[0] if len(every) == 1 else heapq.merge(*every, key=attrgetter("at_s"))
        return requests(rows, self.reading)


def open_trace(paths: Path | Sequence[Path], reading: Reading | None = None) -> Trace:
    """Several files, such as the recordings of several routers, are one trace by their times.

    Raises TraceError where a file cannot be read, or is of none of FORMATS or of another one than
    the first.
    """
    every = (paths,) if isinstance(paths, Path) else tuple(paths)
    first = _format_of(every[0])
    for path in every[1:]:
        if (other := _format_of(path)) is not first:
            raise TraceError(path, None, f"is of format {other.name}, {every[0]} of {first.name}")
    reading = reading or Reading()
    unplayed = Unplayed(reading.strict)
    if reading.model is not None and not first.names_models:
        raise TraceError(every[0], None, f"its format, {first.name}, names no models")
    if first is RECORDING:  # one number for all, or their prompts would share no tokens
        ratio = recording.bytes_per_token(every[0], reading.model, unplayed)
        reading = replace(reading, bytes_per_token=ratio)
    return Trace(every, first, reading, unplayed)


def _format_of(path: Path) -> Format:
    """By the first line."""
    line = next(lines(path), None)
    if line is None:
        raise TraceError(path, None, "holds no requests")
    if azure.columns(line.text) is not None:
        return AZURE
    try:
        found = msgspec.json.decode(line.text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        found = None
    names = set(found) if isinstance(found, dict) else set()
    if recording.MARK.decode() in names:
        return RECORDING
    if names.intersection(("hash_ids", "input_length")):
        return MOONCAKE
    if names.intersection(("body", "messages", "prompt", "input")):
        return TEXT
    known = "".join(f"\n  {known.name}: {known.what}" for known in FORMATS)
    raise TraceError(path, line.number, f"is of no known format; known are{known}")
