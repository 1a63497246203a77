"""The fleet's shared state in Redis: replica registry, prefix tree, placement and leases.

`connect` opens the client, `Registry` says who lives, `Placer` decides where a prompt goes. Every
error that leaves this package is a `FleetError`; `fleet/README.md` lists the keys and the formula.
"""

from pando_fleet.client import FleetError, FleetUnavailable, RedisClient, connect
from pando_fleet.marks import Mark, MarkKind, Marks, MarkState
from pando_fleet.placement import Ask, Candidate, NoReplica, Placement, Placer
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

__all__ = [
    "CHUNK_BYTES",
    "Ask",
    "Candidate",
    "FleetError",
    "FleetUnavailable",
    "Heartbeat",
    "Mark",
    "MarkKind",
    "MarkState",
    "Marks",
    "NoReplica",
    "Placement",
    "Placer",
    "PrefixError",
    "PrefixTree",
    "RedisClient",
    "Registry",
    "Replica",
    "ReplicaState",
    "chat_bytes",
    "chunk_keys",
    "completion_bytes",
    "connect",
    "seed",
]
