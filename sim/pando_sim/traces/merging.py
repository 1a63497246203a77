"""`merge`: several routers' recordings as one, by time, with what is in it and what is not."""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from pando_router.recording.form import STATE_S, FleetState, Header, Record
from pando_sim.traces.distinct import Distinct
from pando_sim.traces.formats.recording import entries, headers

GAP_S = 3 * STATE_S
"""A router that records says so every `STATE_S` seconds, also without requests."""


@dataclass(slots=True)
class Merged:
    """What is in a merged recording. Times are Unix times."""

    routers: set[str] = field(default_factory=set)
    secrets: set[str] = field(default_factory=set)  # with several, prompts share less than they did
    outcomes: Counter[str] = field(default_factory=Counter)  # requests
    models: Counter[str] = field(default_factory=Counter)
    pools: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reported_tokens: int = 0  # prompt tokens of the requests whose replica reported cached ones
    sessions: Distinct = field(default_factory=Distinct)
    streams: int = 0
    begin: float | None = None
    end: float | None = None
    gaps: list[tuple[float, float]] = field(default_factory=list)  # in which no router recorded
    unrecorded: int = 0  # requests that routers should have recorded and could not
    states: int = 0  # lines about the fleet
    _heard: float | None = None

    @property
    def requests(self) -> int:
        return self.outcomes.total()

    def add(self, entry: Record | FleetState) -> None:
        at = _at(entry)
        if self._heard is not None and at - self._heard > GAP_S:
            self.gaps.append((self._heard, at))
        self._heard = at
        self.begin = at if self.begin is None else self.begin
        self.end = at
        if isinstance(entry, FleetState):
            self.states += 1
            self.unrecorded += entry.unrecorded
            return
        self.outcomes[entry.outcome.value] += 1
        self.models[entry.model] += 1
        if entry.pool:
            self.pools[entry.pool] += 1
        self.prompt_tokens += entry.prompt_tokens
        self.output_tokens += entry.output_tokens
        if entry.cached_tokens is not None:
            self.cached_tokens += entry.cached_tokens
            self.reported_tokens += entry.prompt_tokens
        if entry.session:
            self.sessions.add(entry.session)
        self.streams += entry.stream


def merge(paths: Sequence[Path], output: BinaryIO) -> Merged:
    """Writes the lines of all files to `output`, in the order of their times.

    The files are read as streams, whatever their size. Raises TraceError for a file that is no
    recording, OSError if the output cannot be written.
    """
    merged = Merged()
    for path in paths:
        for header in headers(path):
            merged.routers.add(header.router)
            merged.secrets.add(header.secret)
    started = False
    encoder = msgspec.json.Encoder()
    lines = heapq.merge(*(_by_time(path) for path in paths), key=_at)
    for entry in lines:
        if not started:
            secret = next(iter(merged.secrets)) if len(merged.secrets) == 1 else ""
            header = Header(started=_at(entry), router="merged", secret=secret)
            output.write(encoder.encode(header) + b"\n")
            started = True
        merged.add(entry)
        if isinstance(entry, Record):
            entry.oldest = entry.at  # all earlier ones stand before it
        output.write(encoder.encode(entry) + b"\n")
    return merged


def _at(entry: Record | FleetState) -> float:
    return entry.at if isinstance(entry, Record) else entry.fleet_at


def _by_time(path: Path) -> Iterator[Record | FleetState]:
    """A file's lines, whose requests are in the order of their ends, in that of their times."""
    waiting: list[tuple[float, int, Record | FleetState]] = []
    for number, entry in entries(path):
        heapq.heappush(waiting, (_at(entry), number, entry))
        if isinstance(entry, Record):
            while waiting and waiting[0][0] <= entry.oldest:
                yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]
