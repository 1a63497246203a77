"""`Row`, which every format's reader makes from a line, and how rows become requests.

Closed loop: a request of a session waits for the session's previous request, and then for the pause
that the trace shows. If the trace does not say when an answer ended, it is estimated: the answer
was written at `answer_tokens_per_s`.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pando_fleet.images.rule import ImageRule
from pando_sim.request import TOKEN_BYTES, Request
from pando_sim.traces.errors import LineError, TraceError
from pando_sim.traces.lines import Line
from pando_sim.traces.unplayed import Unplayed

if TYPE_CHECKING:
    from pando_sim.traces.prompts import Tokenize, TracePrompt

MAX_SESSIONS = 100_000
"""Sessions remembered at once; above that, the longest silent ones start anew."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Options for reading traces."""

    closed_loop: bool = True  # requests of a session wait for each other
    answer_tokens_per_s: float = 100.0  # if the trace does not say how long an answer took
    tokenize: "Tokenize | None" = None  # for traces with text; None: 4 bytes a token
    image_rule: ImageRule | None = None  # from an image's size, or a sound's length, to tokens
    model: str | None = None  # only requests for it, if the trace names models
    bytes_per_token: float = float(TOKEN_BYTES)  # of recordings, measured from their files
    shared_tools: bool = True  # of sessions: tool descriptions of equal size are equal
    strict: bool = True  # a line that cannot be played ends the reading; otherwise it is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    line: int
    at_s: float  # since any moment that is the same for all rows
    prompt: "TracePrompt"
    output_tokens: int
    session: str = ""
    adapter: str = ""  # LoRA adapter, if the trace names one
    end_s: float | None = None  # end of the answer, if the trace says it


def playable(
    lines: Iterable[Line], read: Callable[[Line], Row | None], unplayed: Unplayed
) -> Iterator[Row]:
    """The rows that `read` makes from the lines; it returns None for a line that is filtered out.
    Lines for which it raises LineError are added to `unplayed`.
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
    """Which request waits for which. `follow` each request in the order of arrivals."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._last: OrderedDict[str, _Turn] = OrderedDict()

    def follow(self, number: int, row: Row) -> tuple[int | None, float]:
        """The number of the request that this one waits for, and the pause after its answer."""
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
        if pause_s < 0 and row.end_s is not None:  # it arrived before that answer's end
            return None, 0.0
        return before.number, max(0.0, pause_s)


def in_order(path: Path, rows: Iterator[Row]) -> Iterator[Row]:
    """Raises TraceError if time goes backwards."""
    last_s = -math.inf
    for row in rows:
        if row.at_s < last_s:
            behind = f"it arrives {last_s - row.at_s:g} s before the previous request"
            raise TraceError(path, row.line, f"{behind}; sort the trace by its timestamps")
        last_s = row.at_s
        yield row


def requests(rows: Iterator[Row], reading: Reading) -> Iterator[Request]:
    """Numbers the rows, with times from the first one on."""
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
            adapter=row.adapter,
            after=after,
            pause_s=pause_s,
        )
