"""What every format's reader makes of a line, and how lines become requests.

Closed loop: a request that belongs to a session waits for the session's request before it, and then
for the pause that the trace shows. Where the trace does not tell when an answer ended, that is
estimated: it was written at `answer_tokens_per_s`.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pando_sim.request import Request
from pando_sim.traces.errors import LineError, TraceError
from pando_sim.traces.lines import Line
from pando_sim.traces.prompts import TOKEN_BYTES, Tokenize, TracePrompt, view_tokens
from pando_sim.traces.unplayed import Unplayed

MAX_SESSIONS = 100_000
"""Remembered at once; of more, those that were silent for longest begin anew."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How traces are read."""

    closed_loop: bool = True  # requests of a session wait for each other
    answer_tokens_per_s: float = 100.0  # where the trace does not say how long an answer took
    tokenize: Tokenize = view_tokens  # of traces with text
    model: str | None = None  # only requests for it; traces that name models
    bytes_per_token: float = float(TOKEN_BYTES)  # of recordings, whose files say it
    strict: bool = True  # a line that cannot be played ends the reading; else it is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    line: int
    at_s: float  # since any moment, the same for all rows
    prompt: TracePrompt
    output_tokens: int
    session: str = ""
    end_s: float | None = None  # of the answer, where the trace says it


def playable(
    lines: Iterable[Line], read: Callable[[Line], Row | None], unplayed: Unplayed
) -> Iterator[Row]:
    """The rows that `read` makes of the lines; None is for a line that was not asked for.

    Lines for which it raises LineError go to `unplayed`.
    """
    for line in lines:
        try:
            row = read(line)
        except LineError as error:
            unplayed.add(error)
        else:
            if row is not None:
                yield row


class _Turn(NamedTuple):
    number: int
    end_s: float


class Conversations:
    """Who waits for whom. `follow` each request in the order of arrivals."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._last: OrderedDict[str, _Turn] = OrderedDict()

    def follow(self, number: int, row: Row) -> tuple[int | None, float]:
        """The number of the request that this one waits for, and the pause behind its answer."""
        if not row.session or not self._reading.closed_loop:
            return None, 0.0
        before = self._last.pop(row.session, None)
        end_s = row.end_s
        if end_s is None:
            end_s = row.at_s + row.output_tokens / self._reading.answer_tokens_per_s
        self._last[row.session] = _Turn(number, end_s)
        if len(self._last) > MAX_SESSIONS:
            self._last.popitem(last=False)
        if before is None:
            return None, 0.0
        pause_s = row.at_s - before.end_s
        if pause_s < 0 and row.end_s is not None:  # it did come before that answer's end
            return None, 0.0
        return before.number, max(0.0, pause_s)


def in_order(path: Path, rows: Iterator[Row]) -> Iterator[Row]:
    """Raises TraceError where time goes back."""
    last_s = -math.inf
    for row in rows:
        if row.at_s < last_s:
            behind = f"it comes {last_s - row.at_s:g} s before the request ahead of it"
            raise TraceError(path, row.line, f"{behind}; sort the trace by its timestamps")
        last_s = row.at_s
        yield row


def requests(rows: Iterator[Row], reading: Reading) -> Iterator[Request]:
    """Numbered, with times from the first one on."""
    conversations = Conversations(reading)
    begin_s = None
    for number, row in enumerate(rows):
        if begin_s is None:
            begin_s = row.at_s
        after, pause_s = conversations.follow(number, row)
        yield Request(
            number=number,
            at_s=row.at_s - begin_s,
            prompt=row.prompt,
            output_tokens=max(1, row.output_tokens),
            session=row.session,
            after=after,
            pause_s=pause_s,
        )
