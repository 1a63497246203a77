"""`Arrivals`: when a trace's requests arrive, including those that wait for an earlier answer."""

import math
from array import array
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from pando_sim.records import Served, SessionCounts
from pando_sim.request import Request
from pando_sim.timeline import Timeline

UNKNOWN = -math.inf


class Arrivals:
    """Reads the trace one request ahead. A request that waits for an answer is read at its `at_s`,
    before which it cannot arrive, and kept until that answer has ended."""

    def __init__(
        self,
        requests: Iterator[Request],
        timeline: Timeline,
        arrive: Callable[[Request], Awaitable[None]],
    ) -> None:
        self._read = 0  # requests read
        self._ended = 0
        self._is_exhausted = False
        self._requests = requests
        self._timeline = timeline
        self._arrive = arrive
        self._ends = array("d")  # by number, seconds
        self._waiting: dict[int, list[Request]] = {}  # by the number that they wait for

    def begin(self) -> None:
        self._next()

    @property
    def over(self) -> bool:
        return self._is_exhausted and self._ended == self._read

    @property
    def counts(self) -> SessionCounts | None:
        return None

    def _next(self) -> None:
        """Schedules the next request."""
        request = next(self._requests, None)
        if request is None:
            self._is_exhausted = True
            return
        if request.number != self._read:
            raise ValueError(f"request {request.number} comes where number {self._read} is due")
        if request.after is not None and request.after >= request.number:
            raise ValueError(f"request {request.number} waits for a later one, {request.after}")
        self._read += 1
        self._ends.append(UNKNOWN)
        self._timeline.at(request.at_s, partial(self._due, request))

    async def _due(self, request: Request) -> None:
        self._next()
        if request.after is None:
            await self._arrive(request)
            return
        end_s = self._ends[request.after]
        if end_s == UNKNOWN:
            self._waiting.setdefault(request.after, []).append(request)
        elif end_s + request.pause_s <= self._timeline.now_s:
            await self._arrive(request)
        else:
            self._timeline.at(end_s + request.pause_s, partial(self._arrive, request))

    def ended(self, served: Served) -> None:
        """An answer has ended; the requests that waited for it arrive after their pauses."""
        self._ended += 1
        self._ends[served.number] = self._timeline.now_s
        for request in self._waiting.pop(served.number, ()):
            self._timeline.after(request.pause_s, partial(self._arrive, request))
