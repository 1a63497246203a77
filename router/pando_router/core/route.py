"""`Route`: a replica for one try, and `Shortage`: why there is none."""

from enum import StrEnum
from typing import Protocol

import msgspec

from pando_fleet.placement.placer import Placement


class Shortage(StrEnum):
    """Why a request cannot be placed now."""

    FULL = "full"  # replicas are ready, and each has all the requests that it may have
    ASLEEP = "asleep"  # none is ready, one is coming
    NONE = "none"  # none is ready, and none is known to come


class Lease(Protocol):
    """What placing reserved and its undo, as `pando_fleet.placement.lease.Lease` has it."""

    def answered(self, *, complete: bool) -> None: ...

    def correct(self, chunks: int) -> None: ...

    def close(self) -> None: ...


class Route(msgspec.Struct, frozen=True):
    """A replica, and what is believed to be cached there of the prompt."""

    pool: str
    replica: str
    incarnation: str
    url: str
    lease: Lease | None = None  # None where Redis had no part in it
    placement: Placement | None = None  # the shared placement's terms, where it chose
    matched_chunks: int = 0
    matched_tokens: int = 0
