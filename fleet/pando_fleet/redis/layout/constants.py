"""Numbers and words that Python and Lua share; a Lua file writes `$FRESH_MS`, `$Mode.PLACE`."""

from enum import StrEnum

CHUNK_BYTES = 256
"""Bytes of prompt per key, about 64 tokens of English."""

KEY_BYTES = 8
"""Bytes of one packed key."""

SHORT_KEY_CHARS = 12
"""Characters of a LoRA adapter's short key (`pando_fleet.registry.adapter`)."""

MAX_CHUNKS = 8192
"""Most keys of one prompt (2 MiB of prompt), which bounds the cost of a placement in Redis. Also
the scores per bucket of time in a tree."""

TREE_TTL_MS = 600_000
"""How long a tree lasts that nobody touches and whose replica sends no heartbeats."""

UNKNOWN_CAPACITY_CHUNKS = 65_536
"""The tree's capacity for a replica that does not report its own."""

TREES_PERCENT = 80
"""Of maxmemory: above it, heartbeats cut trees, which leaves room for half a second."""

FRESH_MS = 3_000
"""The age at which a heartbeat is stale: six beats missed. Its replica then gets no requests from
`lua/placement/fleet_ops.lua`, and is lost to routers (`pando_router/fleet_view/snapshot.py`) unless
it shows other signs of life."""

RETENTION_MS = 60_000
"""How long a silent replica stays listed, so that people can see it as lost."""

SILENCE_MS = 5_000
"""The age at which a router's report of its queue no longer counts."""

ROUTER_SILENCE_MS = 3_000
"""A router that missed six beats counts as dead, and its leases are ended."""

SHARED_SILENCE_MS = 1_500
"""If no router at all was heard for this time, Redis was the reason, and the time does not
count."""

MENDED_MS = 15_000
"""How long a lease lasts whose end Redis lost, unless its router renews it."""

CLAIM_MS = 30_000
"""How long a claim of a mark lasts after its router's last report."""

MARK_KEPT_MS = 600_000
"""How long a mark that is over can still be read."""

UPSTREAM_KEPT_MS = TREE_TTL_MS
"""An engine that is away for longer finds nothing that its old incarnation would be useful for."""

HOMES_KEPT_MS = 24 * 3600 * 1000
"""How long homes are kept after the last answer of the pool."""

LANDMARK_CHUNKS = 8
"""Between two chunks of a prompt by which `lua/placement/session_rows.lua` recognizes a session."""

MOST_SESSIONS = 8192
"""Of a pool, whose working set is counted; further ones are placed without being counted."""

HELD_BACK = b"held"
"""The answer instead of a place, before CROWDED: the working set has no room for the session."""

FULL = b"full"
"""The answer instead of a place: all allowed replicas are at their limit of requests."""


class Mode(StrEnum):
    """What place.lua is to do."""

    PLACE = "place"
    EXPLAIN = "explain"
    CROWD = "crowd"  # explain what its session would wait for


class Held(StrEnum):
    """Where a replica holds a LoRA adapter, in `rows.AdapterTerms`."""

    DEVICE = "d"
    WAITING = "w"  # for a slot in device memory
    HOST = "h"


class MarkKind(StrEnum):
    DRAIN = "drain"
    WARM = "warm"
    HAND_OFF = "hand_off"


class MarkState(StrEnum):
    OPEN = "open"
    CLAIMED = "claimed"
    DONE = "done"
    SKIPPED = "skipped"  # `reason` explains it
