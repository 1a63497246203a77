"""Numbers and words that Python and Lua both know; a Lua file writes `$FRESH_MS`, `$Mode.PLACE`."""

from enum import StrEnum

CHUNK_BYTES = 256
"""Bytes of prompt under one key, about 64 tokens of English."""

KEY_BYTES = 8
"""Bytes of one packed key."""

MAX_CHUNKS = 8192
"""Keys of one prompt at most (2 MiB of prompt): bounds what one placement costs Redis. Also the
scores that one bucket of time has in a tree."""

TREE_TTL_MS = 600_000
"""Of a tree that nobody touches and whose replica sends no heartbeats."""

UNKNOWN_CAPACITY_CHUNKS = 65_536
"""Kept for a replica that does not say what it can hold."""

TREES_PERCENT = 80
"""Of maxmemory: where more is used heartbeats cut trees, which leaves room for half a second."""

FRESH_MS = 3_000
"""A replica whose last heartbeat is older gets no requests: six beats missed."""

RETENTION_MS = 60_000
"""A replica that fell silent stays listed this long, so that people can see it as lost."""

SILENCE_MS = 5_000
"""After which a router's word about its queue counts no more."""

ROUTER_SILENCE_MS = 3_000
"""A router that missed six beats counts as dead, and its leases end."""

SHARED_SILENCE_MS = 1_500
"""Where no router at all was heard for so long, Redis was the reason: this time counts for none."""

MENDED_MS = 15_000
"""A lease whose end Redis lost lasts so long, unless its router renews it."""

CLAIM_MS = 30_000
"""A claim of a mark ends so long after its router's last word."""

MARK_KEPT_MS = 600_000
"""A mark that is over can be read this long."""

UPSTREAM_KEPT_MS = TREE_TTL_MS
"""A foreign engine that comes back later finds nothing that an incarnation would be good for."""

HOMES_KEPT_MS = 24 * 3600 * 1000
"""Who answered under which name is forgotten this long after the last answer of the pool."""

FULL = b"full"
"""Instead of a place: all replicas that are allowed have the most requests."""


class Mode(StrEnum):
    """What place.lua is asked for."""

    PLACE = "place"
    EXPLAIN = "explain"


class MarkKind(StrEnum):
    DRAIN = "drain"
    WARM = "warm"
    HAND_OFF = "hand_off"


class MarkState(StrEnum):
    OPEN = "open"
    CLAIMED = "claimed"
    DONE = "done"
    SKIPPED = "skipped"  # `reason` says why
