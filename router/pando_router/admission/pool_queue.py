"""Requests that wait for a place at a replica, and the one task that gets places for them.

`wait` returns what `place` found for the request. While somebody waits, a pump asks `place` for
whoever is next in the `Line`, one call at a time: at once after `wake` (a place of this router's
own was given back) and after each success, else after a short pause. Without waiting requests there
is no task and no timer.

Each request has one owner: the coroutine in `wait`, until it ends, by whatever end, in its
`finally`. A place has one owner too: the pump, until the request's future holds it, then the
coroutine in `wait`; who finds that nobody wants it any more gives it to `give_back`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Generic, TypeVar

from pando_router.core.fair_queue import Entry
from pando_router.core.line import LeaveReason, Limits, Line, pause_s
from pando_router.core.route import Shortage
from pando_router.current import Current
from pando_router.errors import ApiError

AskT = TypeVar("AskT")
PlaceT = TypeVar("PlaceT")


def _future() -> "asyncio.Future[Any]":
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class Waiting(Generic[AskT, PlaceT]):
    """What an entry of the line stands for; made in the event loop."""

    ask: AskT
    found: "asyncio.Future[PlaceT]" = field(default_factory=_future)


class PoolQueue(Generic[AskT, PlaceT]):
    """The line of one pool in one router, in the running event loop."""

    def __init__(
        self,
        name: str,
        limits: Current[Limits],
        place: Callable[[AskT], Awaitable[PlaceT | Shortage]],
        give_back: Callable[[PlaceT], None],
        left: Callable[[LeaveReason], None],
        rng: random.Random,
    ) -> None:
        """Calls `left` when a wait ends."""
        self.line: Line[Waiting[AskT, PlaceT]] = Line(name, limits, monotonic)
        self._place = place
        self._give_back = give_back
        self._left = left
        self._rng = rng
        self._free = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """A place may be free."""
        self._free.set()

    async def wait(
        self,
        mine: Entry[Waiting[AskT, PlaceT]],
        shortage: Shortage,
        timeout_s: float,
        late: Callable[[int], ApiError],
    ) -> PlaceT:
        """The request's place, in its turn.

        Raises ApiError: at once where the queue is full, 429 or 503 while no replica is ready;
        after `timeout_s` what `late` makes of a Retry-After in seconds; and what `place` raises.
        """
        if (gone := self.line.enter(mine, shortage)) is not None:
            self._refuse(gone[0], LeaveReason.CROWDED_OUT, gone[1])
        if self._pump is None:
            self._pump = asyncio.create_task(self._run())
        found = mine.what.found
        timer = found.get_loop().call_later(timeout_s, self._expire, mine, late)
        try:
            return await found
        except asyncio.CancelledError:
            if found.cancelled():
                self._left(LeaveReason.CLIENT_LEFT)
            elif found.exception() is None:
                self._give_back(found.result())  # found in the moment of leaving
            raise
        finally:
            timer.cancel()
            if mine in self.line:
                self.line.leave(mine)

    def close(self) -> None:
        """Ends the pump; nobody may wait any more."""
        if self._pump is not None:
            self._pump.cancel()

    def _refuse(
        self, entry: Entry[Waiting[AskT, PlaceT]], reason: LeaveReason, error: Exception
    ) -> None:
        """The entry has left the line."""
        if not entry.what.found.done():  # else its client is leaving, which is its end
            self._left(reason)
            entry.what.found.set_exception(error)

    def _expire(self, entry: Entry[Waiting[AskT, PlaceT]], late: Callable[[int], ApiError]) -> None:
        if entry in self.line:
            error = late(self.line.retry_after_s())
            self.line.leave(entry)
            self._refuse(entry, LeaveReason.EXPIRED, error)

    async def _run(self) -> None:
        try:
            while (head := self.line.head()) is not None:
                self._free.clear()
                if not await self._serve(head):
                    await self._pause()
        finally:
            self._pump = None

    async def _serve(self, head: Entry[Waiting[AskT, PlaceT]]) -> bool:
        """Tries to find a place for `head`; whether to go on at once."""
        try:
            found = await self._place(head.what.ask)
        except Exception as error:
            # As where it need not wait: what its placement raises is this request's end.
            if head in self.line:
                self.line.leave(head)
                self._refuse(head, LeaveReason.FAILED, error)
            return True
        if isinstance(found, Shortage):
            refusal = self.line.none_for(head, found)
            if refusal is not None:
                self._refuse(head, LeaveReason.NO_REPLICA, refusal)
            return refusal is not None
        if head not in self.line or head.what.found.done():  # left while its place was sought
            self._give_back(found)
            return True
        self.line.take(head)
        self._left(LeaveReason.PLACED)
        head.what.found.set_result(found)
        return True

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(pause_s(self._rng)):
                await self._free.wait()
        except TimeoutError:
            pass
