"""The fleet's shared state in Redis: replica registry, prefix tree, placement and leases.

Read in this order:
    redis/       connection, keys, scripts; every error that leaves here is a `FleetError`
    registry/    what a replica says of itself, and who lives
    records/     what else stands in Redis, one file a kind
    canonical/   a prompt's bytes
    placement/   where a prompt goes, and the lease from then on
    http/        what router and worker answer alike: errors, request ids, time limits
    traces.py    spans of requests
    choices.py   registries that settings choose from
    patience.py  waits that end in time
    guard.py     ends processes whose parent died

The Lua scripts are in `lua/`. `fleet/README.md` lists the keys and the formula. Imports no other
part, and by itself nothing: who needs no Redis, as the worker's HTTP process at its start, does not
load it.
"""
