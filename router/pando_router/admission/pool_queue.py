"""Requests that wait for a place at a replica, and the one task that gets places for them.

`wait` returns what `place` found for the request. While somebody waits, a pump asks `place` for
whoever is next, one call at a time: at once after `wake` (a place of this router's own was given
back) and after each success, else every PACE_S with jitter, which is how places that other routers
gave back are noticed, LONGEST_PAUSE_S later at worst, and replicas that become ready. Without
waiting requests there is no task and no timer.

Each request has one owner: the coroutine in `wait`, until it ends, by whatever end, in its
`finally`. A place has one owner too: the pump, until the request's future holds it, then the
coroutine in `wait`; who finds that nobody wants it any more gives it to `give_back`.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic
from typing import Any, Generic, TypeVar

from pando_router.core.drain_rate import DrainRate
from pando_router.core.fair_queue import Entry, FairQueue
from pando_router.core.shortage import Shortage
from pando_router.errors import ApiError, unavailable

PACE_S = 0.02
JITTER = 0.5  # of PACE_S, either way: routers shall not knock together
LONGEST_PAUSE_S = PACE_S * (1 + JITTER)

logger = logging.getLogger("pando.router")

AskT = TypeVar("AskT")
PlaceT = TypeVar("PlaceT")


class LeaveReason(StrEnum):
    """How a wait ended; the label of a metric."""

    PLACED = "placed"
    EXPIRED = "expired"
    CROWDED_OUT = "crowded_out"
    CLIENT_LEFT = "client_left"
    NO_REPLICA = "no_replica"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Limits:
    requests: int
    body_bytes: int


def _future() -> "asyncio.Future[Any]":
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class Waiting(Generic[AskT, PlaceT]):
    """What an entry of the fair queue stands for; made in the event loop."""

    ask: AskT
    body_bytes: int
    found: "asyncio.Future[PlaceT]" = field(default_factory=_future)
    since: float = field(default_factory=monotonic)


class PoolQueue(Generic[AskT, PlaceT]):
    """The bounded queue of one pool in one router, in the running event loop."""

    def __init__(
        self,
        name: str,
        limits: Callable[[], Limits],
        place: Callable[[AskT], Awaitable[PlaceT | Shortage]],
        give_back: Callable[[PlaceT], None],
        left: Callable[[LeaveReason], None],
        rng: random.Random,
    ) -> None:
        """`limits` gives those that hold now; `left` is told the end of each wait."""
        self._name = name
        self._limits = limits
        self._place = place
        self._give_back = give_back
        self._left = left
        self._rng = rng
        self._queue: FairQueue[Waiting[AskT, PlaceT]] = FairQueue()
        self._body_bytes = 0
        self.tokens = 0.0  # estimated, of all who wait
        self._rate = DrainRate()
        self._shortage = Shortage.FULL
        self._free = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def longest_wait_s(self) -> float:
        oldest = self._queue.oldest()
        return monotonic() - oldest.what.since if oldest else 0.0

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
        if not self._queue:
            self._shortage = shortage
        self._enter(mine)
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
            if mine in self._queue:
                self._leave(mine)

    def close(self) -> None:
        """Ends the pump; nobody may wait any more."""
        if self._pump is not None:
            self._pump.cancel()

    def retry_after_s(self) -> int:
        return self._rate.retry_after_s(len(self._queue) + 1)

    def _enter(self, mine: Entry[Waiting[AskT, PlaceT]]) -> None:
        limits = self._limits()
        if self._body_bytes + mine.what.body_bytes > limits.body_bytes:
            raise self._full(f"{self._body_bytes} bytes of requests wait already")
        if len(self._queue) >= limits.requests:
            gone = self._queue.gives_way(mine)
            if gone is None:
                raise self._full(f"{len(self._queue)} requests wait already")
            error = self._full("others needed the place in the queue")
            self._refuse(gone, LeaveReason.CROWDED_OUT, error)
        self._queue.add(mine)
        self._count(mine, 1)

    def _leave(self, entry: Entry[Waiting[AskT, PlaceT]]) -> None:
        self._queue.remove(entry)
        self._count(entry, -1)

    def _count(self, entry: Entry[Waiting[AskT, PlaceT]], sign: int) -> None:
        self._body_bytes += sign * entry.what.body_bytes
        self.tokens += sign * entry.cost

    def _refuse(
        self, entry: Entry[Waiting[AskT, PlaceT]], reason: LeaveReason, error: Exception
    ) -> None:
        self._leave(entry)
        if not entry.what.found.done():  # else its client is leaving, which is its end
            self._left(reason)
            entry.what.found.set_exception(error)

    def _full(self, why: str) -> ApiError:
        retry_after = self.retry_after_s()
        if self._shortage is not Shortage.FULL:
            return unavailable(
                f"no replica of pool {self._name!r} is ready yet, and {why}",
                "queue_full",
                retry_after=retry_after,
            )
        return ApiError(
            429,
            f"all replicas of pool {self._name!r} are busy, and {why}",
            kind="rate_limit_error",
            code="queue_full",
            headers={"retry-after": str(retry_after)},
        )

    def _expire(self, entry: Entry[Waiting[AskT, PlaceT]], late: Callable[[int], ApiError]) -> None:
        if entry in self._queue:
            self._refuse(entry, LeaveReason.EXPIRED, late(self.retry_after_s()))

    async def _run(self) -> None:
        try:
            while (head := self._queue.head()) is not None:
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
            if head in self._queue:
                self._refuse(head, LeaveReason.FAILED, error)
            return True
        if isinstance(found, Shortage):
            self._shortage = found
            if found is not Shortage.NONE or head not in self._queue:
                return False
            self._refuse(
                head,
                LeaveReason.NO_REPLICA,
                unavailable(
                    f"pool {self._name!r} has no ready replica any more, and none is coming",
                    "no_ready_replica",
                    retry_after=self.retry_after_s(),
                ),
            )
            return True
        if head not in self._queue or head.what.found.done():  # left while its place was sought
            self._give_back(found)
            return True
        self._rate.count()
        self._left(LeaveReason.PLACED)
        self._count(head, -1)
        self._queue.take(head)
        head.what.found.set_result(found)
        return True

    async def _pause(self) -> None:
        pause_s = PACE_S * self._rng.uniform(1 - JITTER, 1 + JITTER)
        try:
            async with asyncio.timeout(pause_s):
                await self._free.wait()
        except TimeoutError:
            pass
