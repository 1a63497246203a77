"""`BoundedQueue`: one router's requests that wait for a pool's replicas. No I/O, no own clock.

`enter` adds a request, `head` is the next one, and `take` or `not_placed` reports the result of
placing it. The driver looks for places: at once after a success or when a freed place `is_for_us`,
otherwise after `pause_s`, to notice places that other routers freed and replicas that became ready.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from pando_fleet.current import Current
from pando_router.core.drain_rate import DrainRate
from pando_router.core.fair_queue import Entry, FairQueue
from pando_router.core.route import Shortage
from pando_router.errors import ApiError, unavailable

PACE_S = 0.02
CROWD_PACE_S = 0.5
"""The same for sessions that wait for memory: room comes with pauses, which last seconds."""
JITTER = 0.5  # of PACE_S, either way, so that routers do not look at the same moments
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
class QueueLimits:
    requests: int
    body_bytes: int


def pause_s(rng: random.Random, *, is_of_memory: bool = False) -> float:
    """Seconds until the next attempt to find a place, or memory, that this router did not free."""
    pace_s = CROWD_PACE_S if is_of_memory else PACE_S
    return pace_s * rng.uniform(1 - JITTER, 1 + JITTER)


def is_for_us(rng: random.Random, here: int, elsewhere: int) -> bool:
    """Whether a place freed by this router goes to one of the `here` requests that wait at it.

    True with the probability that the next of all waiting requests is here; otherwise the router
    that looks first gets the place. Without this rule, a router that holds all places would keep
    them while it has a queue.
    """
    return not elsewhere or rng.random() * (here + elsewhere) < here


class BoundedQueue(Generic[T]):
    """The bounded queue of one pool in one router."""

    def __init__(self, name: str, limits: Current[QueueLimits], clock: Callable[[], float]) -> None:
        self._limits = limits
        self.tokens = 0.0  # estimated, of all waiting requests
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
        """The next request in the queue."""
        return self._queue.head()

    @property
    def waits_for_memory(self) -> bool:
        """Whether the last attempt found replicas with room, but no memory for the session."""
        return self._shortage.is_of_memory

    @property
    def longest_wait_s(self) -> float:
        oldest = self._queue.oldest()
        return self._clock() - oldest.since if oldest else 0.0

    def retry_after_s(self) -> int:
        return self._rate.retry_after_s(len(self._queue) + 1)

    def enter(self, entry: Entry[T], shortage: Shortage) -> tuple[Entry[T], ApiError] | None:
        """Adds a request; `shortage` is why it has no place yet.

        Returns the entry dropped from a full queue in its favour, with that entry's error. Raises
        ApiError if the queue is full: 429, or 503 while no replica is ready.
        """
        if not self._queue:
            self._shortage = shortage
        limits = self._limits.now
        if self._body_bytes + entry.body_bytes > limits.body_bytes:
            raise self._full(f"{self._body_bytes} bytes of requests are already waiting")
        lost = None
        if len(self._queue) >= limits.requests:
            gone = self._queue.victim(entry)
            if gone is None:
                raise self._full(f"{len(self._queue)} requests are already waiting")
            lost = gone, self._full("the full queue dropped this request in favour of another")
            self.leave(gone)
        entry.since = self._clock()
        self._queue.add(entry)
        self._count(entry, 1)
        return lost

    def leave(self, entry: Entry[T]) -> None:
        """Removes an entry without a place. Raises KeyError if it is not in the queue."""
        self._queue.remove(entry)
        self._count(entry, -1)

    def take(self, entry: Entry[T]) -> None:
        """Removes an entry that got a place."""
        self._rate.count()
        self._count(entry, -1)
        self._queue.take(entry)

    def not_placed(self, entry: Entry[T], shortage: Shortage) -> ApiError | None:
        """Notes that no place was found for the entry.

        If no replica is ready or expected, removes the entry and returns its error, a 503. Returns
        None if the entry keeps waiting.
        """
        self._shortage = shortage
        if shortage is not Shortage.NONE or entry not in self._queue:
            return None
        self.leave(entry)
        return unavailable(
            f"pool {self._name!r} has no ready replica left, and none is starting",
            "no_ready_replica",
            retry_after=self.retry_after_s(),
        )

    def _count(self, entry: Entry[T], sign: int) -> None:
        self._body_bytes += sign * entry.body_bytes
        self.tokens += sign * entry.cost

    def _full(self, why: str) -> ApiError:
        retry_after = self.retry_after_s()
        if self.waits_for_memory:
            return ApiError(
                429,
                f"the sessions of pool {self._name!r} fill its memory, and {why}",
                kind="rate_limit_error",
                code="queue_full",
                headers={"retry-after": str(retry_after)},
            )
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
