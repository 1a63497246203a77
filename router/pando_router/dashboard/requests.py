"""The last requests, for the dashboard's table.

`add` runs at the end of every request, so it only keeps references to what exists already.
"""

from collections import deque
from heapq import merge
from operator import attrgetter

import msgspec

KEPT = 100
"""Requests kept, and as many of those that did not go smoothly, which many others would hide."""


class RequestRow(msgspec.Struct, frozen=True, gc=False):
    """Numbers and names only: no text of prompts or answers, and no API key."""

    number: int  # from 1, by the time of its end
    at: float  # of its end, Unix time, seconds
    request_id: str
    path: str
    model: str  # empty: refused before its body was read
    tenant: str
    pool: str  # empty: never placed
    replica: str  # the last one
    status: int
    complete: bool  # the whole answer was sent
    ttfb_s: float | None  # to the first byte of a replica's answer
    duration_s: float
    prompt_tokens: int | None  # as the replica reported
    cached_tokens: int | None
    tries: int
    migrations: int


class RecentRequests:
    def __init__(self) -> None:
        self.last = 0  # the newest row's number
        self._all: deque[RequestRow] = deque(maxlen=KEPT)
        self._rough: deque[RequestRow] = deque(maxlen=KEPT)

    def add(self, row: RequestRow) -> None:
        self.last = row.number
        self._all.append(row)
        if row.status >= 400 or row.tries > 1 or not row.complete:
            self._rough.append(row)

    def after(self, number: int) -> list[RequestRow]:
        """The rows with higher numbers, oldest first; all if `number` does not exist yet."""
        if number > self.last:
            number = 0
        rows = {row.number: row for row in merge(self._rough, self._all, key=attrgetter("number"))}
        return [row for row in rows.values() if row.number > number]
