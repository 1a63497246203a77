"""Requests that wait for a place at a replica, and the one task that gets places for them.

`wait` returns what `place` found for the request. While requests wait, a pump calls `place` for the
next one in the `BoundedQueue`, one call at a time: at once after `wake` (this router freed a place)
and after each success, otherwise after a pause, which `wake` does not end where memory is waited
for. Without waiting requests there is no task and no timer.

Each request has one owner: the coroutine in `wait`, until its `finally`. Each place has one owner
too: the pump, until the request's future holds it, then the coroutine in `wait`. The owner of a
place that is no longer needed calls `give_back`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Generic, TypeVar

from pando_fleet.current import Current
from pando_router.core.bounded_queue import BoundedQueue, LeaveReason, QueueLimits, pause_s
from pando_router.core.fair_queue import Entry
from pando_router.core.route import Shortage
from pando_router.errors import ApiError

AskT = TypeVar("AskT")
PlaceT = TypeVar("PlaceT")


def _future() -> "asyncio.Future[Any]":
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class Waiting(Generic[AskT, PlaceT]):
    """The item of a queue's entry; created in the event loop."""

    ask: AskT
    found: "asyncio.Future[PlaceT]" = field(default_factory=_future)


class PoolQueue(Generic[AskT, PlaceT]):
    """One pool's queue in one router, in the running event loop."""

    def __init__(
        self,
        name: str,
        limits: Current[QueueLimits],
        place: Callable[[AskT], Awaitable[PlaceT | Shortage]],
        give_back: Callable[[PlaceT], None],
        left: Callable[[LeaveReason], None],
        rng: random.Random,
    ) -> None:
        """Calls `left` when a wait ends."""
        self.entries: BoundedQueue[Waiting[AskT, PlaceT]] = BoundedQueue(name, limits, monotonic)
        self._place = place
        self._give_back = give_back
        self._left = left
        self._rng = rng
        self._free = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Reports that a place may be free."""
        self._free.set()

    async def wait(
        self,
        mine: Entry[Waiting[AskT, PlaceT]],
        shortage: Shortage,
        timeout_s: float,
        late: Callable[[int], ApiError],
    ) -> PlaceT:
        """Queues the request and returns the place that it gets.

        Raises ApiError: at once if the queue is full, 429 or (while no replica is ready) 503;
        after `timeout_s`, what `late` returns for a Retry-After in seconds; what `place` raises.
        """
        if (gone := self.entries.enter(mine, shortage)) is not None:
            self._refuse(gone[0], LeaveReason.CROWDED_OUT, gone[1])
        if self._pump is None:
            self._pump = asyncio.create_task(self._run())
        found = mine.item.found
        timer = found.get_loop().call_later(timeout_s, self._expire, mine, late)
        try:
            return await found
        except asyncio.CancelledError:
            if found.cancelled():
                self._left(LeaveReason.CLIENT_LEFT)
            elif found.exception() is None:
                self._give_back(found.result())  # found just as the client left
            raise
        finally:
            timer.cancel()
            if mine in self.entries:
                self.entries.leave(mine)

    def close(self) -> None:
        """Ends the pump; no request may wait after that."""
        if self._pump is not None:
            self._pump.cancel()

    def _refuse(
        self, entry: Entry[Waiting[AskT, PlaceT]], reason: LeaveReason, error: Exception
    ) -> None:
        """Ends the wait of an entry that has left the queue."""
        if not entry.item.found.done():  # else its client disconnected, which ends its wait
            self._left(reason)
            entry.item.found.set_exception(error)

    def _expire(self, entry: Entry[Waiting[AskT, PlaceT]], late: Callable[[int], ApiError]) -> None:
        if entry in self.entries:
            error = late(self.entries.retry_after_s())
            self.entries.leave(entry)
            self._refuse(entry, LeaveReason.EXPIRED, error)

    async def _run(self) -> None:
        try:
            while (head := self.entries.head()) is not None:
                self._free.clear()
                if not await self._serve(head):
                    await self._pause()
        finally:
            self._pump = None

    async def _serve(self, head: Entry[Waiting[AskT, PlaceT]]) -> bool:
        """Tries to find a place for `head`. Returns whether to serve the next one at once."""
        try:
            found = await self._place(head.item.ask)
        except Exception as error:
            # The error of a placement ends its request, as it does for one that need not wait.
            if head in self.entries:
                self.entries.leave(head)
                self._refuse(head, LeaveReason.FAILED, error)
            return True
        if isinstance(found, Shortage):
            refusal = self.entries.not_placed(head, found)
            if refusal is not None:
                self._refuse(head, LeaveReason.NO_REPLICA, refusal)
            return refusal is not None
        if head not in self.entries or head.item.found.done():  # left while its place was sought
            self._give_back(found)
            return True
        self.entries.take(head)
        self._left(LeaveReason.PLACED)
        head.item.found.set_result(found)
        return True

    async def _pause(self) -> None:
        """Ends early if a place was freed, also while the last attempt was under way."""
        if self.entries.waits_for_memory:  # which a freed place does not bring
            await asyncio.sleep(pause_s(self._rng, is_of_memory=True))
            return
        try:
            async with asyncio.timeout(pause_s(self._rng)):
                await self._free.wait()
        except TimeoutError:
            pass
