"""The fleet's shared state in Redis: replica registry, prefix tree, placement and leases.

Read in this order:
    client.py      the connection; every error that leaves this package is a `FleetError`
    replica.py     what a replica says of itself; registry.py: who lives
    prefix.py      a prompt as keys of chunks; canonical/: its bytes
    placement.py   where a prompt goes, over a `Wire` (wire/); lease.py: the same with its undo
    layout/        what Lua and Python exchange; lua/: the scripts

`fleet/README.md` lists the keys and the formula. Imports no other part, and by itself nothing: who
needs no Redis, as the worker's HTTP process at its start, does not load it.
"""
