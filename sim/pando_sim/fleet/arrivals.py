"""`Arrivals`: when a trace's requests arrive, including those that wait for an earlier answer."""

import math
from array import array
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

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
        self.read = 0  # requests read
        self.exhausted = False
        self._requests = requests
        self._timeline = timeline
        self._arrive = arrive
        self._ends = array("d")  # by number, seconds
        self._waiting: dict[int, list[Request]] = {}  # by the number that they wait for

    def next(self) -> None:
        """Schedules the next request."""
        request = next(self._requests, None)
        if request is None:
            self.exhausted = True
            return
        if request.number != self.read:
            raise ValueError(f"request {request.number} comes where number {self.read} is due")
        if request.after is not None and request.after >= request.number:
            raise ValueError(f"request {request.number} waits for a later one, {request.after}")
        self.read += 1
        self._ends.append(UNKNOWN)
        self._timeline.at(request.at_s, partial(self._due, request))

    async def _due(self, request: Request) -> None:
        self.next()
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

    def ended(self, number: int) -> None:
        """An answer has ended; the requests that waited for it arrive after their pauses."""
        self._ends[number] = self._timeline.now_s
        for request in self._waiting.pop(number, ()):
            self._timeline.after(request.pause_s, partial(self._arrive, request))
