"""The fleet's shared state in Redis: replica registry, prefix tree, placement and leases.

`connect` opens the client, `Registry` says who lives, `Placer` decides where a prompt goes, over a
`Wire`. Every error that leaves this package is a `FleetError`; `fleet/README.md` lists the keys and
the formula.
"""

from pando_fleet.client import FleetError, FleetUnavailable, RedisClient, connect
from pando_fleet.layout.constants import MarkKind, MarkState
from pando_fleet.layout.rows import Candidate
from pando_fleet.lease import Lease
from pando_fleet.marks import Mark, Marks
from pando_fleet.placement import Ask, NoReplica, Placement, Placer, PoolFull
from pando_fleet.prefix import (
    CHUNK_BYTES,
    PrefixError,
    chat_bytes,
    chunk_keys,
    completion_bytes,
    seed,
)
from pando_fleet.registry import Registry
from pando_fleet.replica import Heartbeat, Replica, ReplicaState
from pando_fleet.tree import PrefixTree
from pando_fleet.wire import Wire

__all__ = [
    "CHUNK_BYTES",
    "Ask",
    "Candidate",
    "FleetError",
    "FleetUnavailable",
    "Heartbeat",
    "Lease",
    "Mark",
    "MarkKind",
    "MarkState",
    "Marks",
    "NoReplica",
    "Placement",
    "Placer",
    "PoolFull",
    "PrefixError",
    "PrefixTree",
    "RedisClient",
    "Registry",
    "Replica",
    "ReplicaState",
    "Wire",
    "chat_bytes",
    "chunk_keys",
    "completion_bytes",
    "connect",
    "seed",
]
