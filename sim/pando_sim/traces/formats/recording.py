"""Recordings of routers (`pando router --record`): lengths, hidden chunk keys, times, outcomes.

Records are in the order in which requests ended, each with the arrival of the oldest request that
was still open. So they can be sorted by arrival while the file is read, holding only what arrived
while the longest request ran.

A prompt's tokens are its bytes divided by the mean of the recording's beginning, because equal
chunks need equal tokens in all requests. The answers of refused or failed requests are unknown;
they get the length that the router expected. Invalid requests are left out, because they cost
nothing.
"""

import heapq
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import msgspec
import numpy as np

from pando_fleet.placement.prefix import CHUNK_BYTES
from pando_router.recording.form import (
    HIDDEN_BYTES,
    VERSION,
    FleetState,
    Header,
    Outcome,
    Record,
)
from pando_sim.request import TOKEN_BYTES
from pando_sim.traces.errors import LineError, TraceError
from pando_sim.traces.formats.format import Reader
from pando_sim.traces.json_lines import decode
from pando_sim.traces.lines import Line, lines
from pando_sim.traces.prompts import Ids, KeyedPrompt
from pando_sim.traces.rows import Reading, Row
from pando_sim.traces.unplayed import Unplayed

MARK = b"pando_recording"
BEGINNING = 1000  # records that determine the bytes per token

_header = msgspec.json.Decoder(Header)
_record = msgspec.json.Decoder(Record)
_state = msgspec.json.Decoder(FleetState)

_MARKED = 32  # bytes at the beginning of a header, which have the mark
_STATE_MARK = b'{"fleet_at":'

_Found = tuple[int, Record]  # the line's number


def rows(path: Path, reading: Reading, base: int, unplayed: Unplayed) -> Iterator[Row]:
    for line, record in _by_arrival(_records(path, unplayed)):
        if reading.model is not None and reading.model not in (record.model, record.base):
            continue
        answered = record.outcome in (Outcome.FINISHED, Outcome.LEFT)
        yield Row(
            line=line,
            at_s=record.at,
            prompt=_prompt(record, reading.bytes_per_token, base + line),
            output_tokens=record.output_tokens if answered else record.expected_tokens,
            session=record.session,
            adapter=record.model if record.base else "",
            end_s=record.at + record.total_s,
        )


def bytes_per_token(path: Path, model: str | None, unplayed: Unplayed) -> float:
    """The mean over the recording's beginning, for one model if it is given."""
    beginning = islice(_records(path, unplayed), BEGINNING)
    records = [r for _, r in beginning if model in (None, r.model, r.base)]
    tokens = sum(record.prompt_tokens for record in records)
    size = sum(record.prompt_bytes for record in records)
    return size / tokens if size and tokens else float(TOKEN_BYTES)


def _prompt(record: Record, bytes_per_token: float, number: int) -> KeyedPrompt:
    return KeyedPrompt(_keys(record), record.prompt_bytes, bytes_per_token, number)


def _records(path: Path, unplayed: Unplayed) -> Iterator[_Found]:
    """The records of requests that cost something. Files of one recording may be concatenated."""
    for line, entry in entries(path, unplayed):
        if isinstance(entry, Record) and entry.outcome is not Outcome.INVALID:
            yield line, entry


def entries(
    path: Path, unplayed: Unplayed | None = None
) -> Iterator[tuple[int, Record | FleetState]]:
    """The lines of a recording with their numbers, but for its headers, which are checked.

    Raises TraceError for a file that cannot be read or is no recording. Lines that are not
    readable are added to `unplayed`.
    """
    is_recording = False
    for line in lines(path):
        if MARK in line.text:
            is_recording = True
            check_header(path, line)
            continue
        if not is_recording:
            raise TraceError(path, line.number, "is no recording of a router")
        is_state = line.text.startswith(_STATE_MARK)
        try:
            entry = decode(path, line, _state) if is_state else decode(path, line, _record)
        except LineError as error:
            if not line.is_whole:
                return  # the router is writing it, or was killed while writing
            if unplayed is not None:
                unplayed.add(error)
            continue
        yield line.number, entry


def fleet_states(path: Path) -> Iterator[FleetState]:
    """The lines about the fleet. Raises TraceError like `entries`."""
    for line in lines(path):
        if MARK in line.text[:_MARKED]:
            check_header(path, line)
        elif line.text.startswith(_STATE_MARK):
            try:
                yield decode(path, line, _state)
            except LineError:
                continue  # cut off, as `entries` explains


def headers(path: Path) -> Iterator[Header]:
    """The headers of a file, one for each recording that was put into it. Raises TraceError."""
    for line in lines(path):
        if MARK in line.text:
            yield check_header(path, line)


def check_header(path: Path, line: Line) -> Header:
    """Raises TraceError if this release cannot read it."""
    header = decode(path, line, _header)
    found = header.pando_recording, header.chunk_bytes, header.hidden_bytes
    if found != (VERSION, CHUNK_BYTES, HIDDEN_BYTES):
        raise TraceError(
            path,
            line.number,
            "is a recording of version {}, with chunks of {} bytes and keys of {}; this one reads"
            " version {}, {} and {}".format(*found, VERSION, CHUNK_BYTES, HIDDEN_BYTES),
        )
    return header


def _by_arrival(records: Iterator[_Found]) -> Iterator[_Found]:
    waiting: list[tuple[float, int, _Found]] = []
    numbers = count()
    for found in records:
        record = found[1]
        heapq.heappush(waiting, (record.at, next(numbers), found))
        while waiting and waiting[0][0] <= record.oldest:
            yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]


def _keys(record: Record) -> Ids:
    hidden = np.frombuffer(record.keys, dtype=np.uint8)
    hidden = hidden[: len(hidden) // HIDDEN_BYTES * HIDDEN_BYTES].reshape(-1, HIDDEN_BYTES)
    whole = np.zeros((len(hidden), 8), dtype=np.uint8)
    whole[:, -HIDDEN_BYTES:] = hidden
    return whole.reshape(-1).view(">u8").astype(np.uint64)


READER = Reader(rows=rows)
