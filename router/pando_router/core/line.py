"""`Line`: the requests of one router that wait for a pool's replicas. No I/O, no clock of its own.

`enter`, then `head` says whose turn it is; `take` and `none_for` are what became of its placing.
Whoever drives the line asks for places: at once after a success, and where a place that was given
back `is_for_us`; else after `pause_s`, by which it notices places that other routers gave back, and
replicas that become ready.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from pando_router.core.drain_rate import DrainRate
from pando_router.core.fair_queue import Entry, FairQueue
from pando_router.core.route import Shortage
from pando_router.current import Current
from pando_router.errors import ApiError, unavailable

PACE_S = 0.02
JITTER = 0.5  # of PACE_S, either way: routers shall not knock together
LONGEST_PAUSE_S = PACE_S * (1 + JITTER)

T = TypeVar("T")


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


def pause_s(rng: random.Random) -> float:
    """Until the next look for a place that nobody here gave back."""
    return PACE_S * rng.uniform(1 - JITTER, 1 + JITTER)


def is_for_us(rng: random.Random, here: int, elsewhere: int) -> bool:
    """Whether a place that was given back here is for one of the `here` that wait at this router.

    It is with the chance that the next one of all who wait is here; else it is left to whichever
    router looks first. Without that, a router whose requests have all places would keep them as
    long as it has a queue.
    """
    return not elsewhere or rng.random() * (here + elsewhere) < here


class Line(Generic[T]):
    """The bounded queue of one pool in one router."""

    def __init__(self, name: str, limits: Current[Limits], clock: Callable[[], float]) -> None:
        self._limits = limits
        self.tokens = 0.0  # estimated, of all who wait
        self._name = name
        self._clock = clock
        self._queue: FairQueue[T] = FairQueue()
        self._body_bytes = 0
        self._rate = DrainRate(clock)
        self._shortage = Shortage.FULL

    def __len__(self) -> int:
        return len(self._queue)

    def __contains__(self, entry: Entry[T]) -> bool:
        return entry in self._queue

    def head(self) -> Entry[T] | None:
        """Whose turn it is."""
        return self._queue.head()

    @property
    def longest_wait_s(self) -> float:
        oldest = self._queue.oldest()
        return self._clock() - oldest.since if oldest else 0.0

    def retry_after_s(self) -> int:
        return self._rate.retry_after_s(len(self._queue) + 1)

    def enter(self, entry: Entry[T], shortage: Shortage) -> tuple[Entry[T], ApiError] | None:
        """`shortage` is why the request has no place yet.

        Returns who lost the place in the queue to it, and what to answer that one. Raises ApiError,
        429, or 503 while no replica is ready, where the queue is full.
        """
        if not self._queue:
            self._shortage = shortage
        limits = self._limits.now
        if self._body_bytes + entry.body_bytes > limits.body_bytes:
            raise self._full(f"{self._body_bytes} bytes of requests wait already")
        lost = None
        if len(self._queue) >= limits.requests:
            gone = self._queue.gives_way(entry)
            if gone is None:
                raise self._full(f"{len(self._queue)} requests wait already")
            lost = gone, self._full("others needed the place in the queue")
            self.leave(gone)
        entry.since = self._clock()
        self._queue.add(entry)
        self._count(entry, 1)
        return lost

    def leave(self, entry: Entry[T]) -> None:
        """Without a place. Raises KeyError where the entry is not here."""
        self._queue.remove(entry)
        self._count(entry, -1)

    def take(self, entry: Entry[T]) -> None:
        """A place was found for the entry, which leaves with it."""
        self._rate.count()
        self._count(entry, -1)
        self._queue.take(entry)

    def none_for(self, entry: Entry[T], shortage: Shortage) -> ApiError | None:
        """No place was found for the head of the line.

        Returns 503, and the entry has left, where none is coming; None where it waits on.
        """
        self._shortage = shortage
        if shortage is not Shortage.NONE or entry not in self._queue:
            return None
        self.leave(entry)
        return unavailable(
            f"pool {self._name!r} has no ready replica any more, and none is coming",
            "no_ready_replica",
            retry_after=self.retry_after_s(),
        )

    def _count(self, entry: Entry[T], sign: int) -> None:
        self._body_bytes += sign * entry.body_bytes
        self.tokens += sign * entry.cost

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
