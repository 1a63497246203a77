"""`Route`: the replica chosen for one try; `Shortage`: why there is none."""

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from pando_fleet.placement.placer import Placement


class Shortage(StrEnum):
    """Why a request cannot be placed now."""

    FULL = "full"  # all ready replicas are at their limit of requests
    CROWDED = "crowded"  # the working set of the pool's sessions has no room for a new one
    RETURNS = "returns"  # nor for this one, whose conversation was evicted
    ASLEEP = "asleep"  # no replica is ready, but one is starting
    NONE = "none"  # no replica is ready, and none is known to be starting

    @property
    def is_of_memory(self) -> bool:
        """Waits for memory, not for a replica."""
        return self in (Shortage.CROWDED, Shortage.RETURNS)


class Lease(Protocol):
    """The part of `pando_fleet.placement.lease.Lease` that flights use."""

    def answered(self, *, complete: bool) -> None: ...

    def correct(self, chunks: int) -> None: ...

    def close(self) -> None: ...


class Route(msgspec.Struct, frozen=True):
    """A replica, and how much of the prompt it is expected to have cached."""

    pool: str
    replica: str
    incarnation: str
    url: str
    lease: Lease | None = None  # None if placed without Redis
    placement: "Placement | None" = None  # the terms of the shared placement, None without Redis
    matched_chunks: int = 0
    matched_tokens: int = 0
    policy: str = ""  # that chose it; "" in the simulator, which has one for each run
