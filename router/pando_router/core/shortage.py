"""Why a request cannot be placed now."""

from enum import StrEnum


class Shortage(StrEnum):
    FULL = "full"  # replicas are ready, and each has all the requests that it may have
    ASLEEP = "asleep"  # none is ready, one is coming
    NONE = "none"  # none is ready, and none is known to come
